// The optimizers of recipes; their steps are in core/kernels/optimizers.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "core/kernels/optimizers.h"
#include "core/optim/optimizer.h"

namespace snug::optim {

// The kernels' options from the recipe and the step.
kernels::AdamWOptions adamw_options(const recipe::OptimizerOptions& options,
                                    const StepOptions& step, int64_t num_steps, uint64_t seed);

// AdamW (Loshchilov & Hutter 2019), all tensors in one fused sweep.
class AdamW final : public Optimizer {
 public:
  AdamW(const recipe::OptimizerOptions& options, std::vector<NamedTensor> parameters,
        uint64_t seed);

 protected:
  void update_range(Range range, const StepOptions& step) override;
  void append_states(size_t parameter, std::vector<NamedTensor>& all) const override;

 private:
  std::vector<at::Tensor> exp_avg_;
  std::vector<at::Tensor> exp_avg_sq_;
};

// AdamW with block-wise 8-bit states (Dettmers et al. 2022), as bitsandbytes.optim.AdamW8bit.
// Tensors of fewer than 4096 elements (norms, biases) keep float32 states, as in bitsandbytes.
class AdamW8bit final : public Optimizer {
 public:
  AdamW8bit(const recipe::OptimizerOptions& options, std::vector<NamedTensor> parameters,
            uint64_t seed, const std::vector<int64_t>& whole_elements);

 protected:
  void update_range(Range range, const StepOptions& step) override;
  void append_states(size_t parameter, std::vector<NamedTensor>& all) const override;

 private:
  // Codes with one scale per block of 256, or float32 values without scales.
  struct Moment {
    at::Tensor values;
    at::Tensor absmax;
  };
  bool is_quantized(size_t parameter) const { return exp_avg_[parameter].absmax.defined(); }

  std::vector<Moment> exp_avg_;
  std::vector<Moment> exp_avg_sq_;
};

// Adafactor (Shazeer & Stern 2018), as torch.optim.Adafactor: no momentum, and only row and column
// means of a matrix's second moment. The factors, and the epsilon that bounds them, are float32 for
// any type of weights (torch uses the gradients' type).
class Adafactor final : public Optimizer {
 public:
  Adafactor(const recipe::OptimizerOptions& options, std::vector<NamedTensor> parameters,
            uint64_t seed);

 protected:
  void update_range(Range range, const StepOptions& step) override;
  void append_states(size_t parameter, std::vector<NamedTensor>& all) const override;

 private:
  std::vector<at::Tensor> row_var_;  // (R, 1), undefined for vectors
  std::vector<at::Tensor> col_var_;  // (1, C), or a vector's variance
};

// Those that are formulas of kernels/optimizers/all.def: Lion, SGD.
std::unique_ptr<Optimizer> make_element_wise(const recipe::OptimizerOptions& options,
                                             std::vector<NamedTensor> parameters, uint64_t seed);

}  // namespace snug::optim
