// AdamW (Loshchilov & Hutter 2019), all tensors in one fused sweep.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/adamw.h"
#include "optim/optimizer.h"

namespace snug::optim {

// What a recipe and a step say to the kernels.
kernels::cpu::AdamWOptions adamw_options(const config::OptimizerOptions& options,
                                         const StepOptions& step, int64_t num_steps, uint64_t seed);

class AdamW final : public Optimizer {
 public:
  AdamW(const config::OptimizerOptions& options, std::vector<NamedTensor> parameters,
        uint64_t seed);

 protected:
  void update_range(Range range, const StepOptions& step) override;
  void append_states(size_t parameter, std::vector<NamedTensor>& all) const override;

 private:
  std::vector<at::Tensor> exp_avg_;
  std::vector<at::Tensor> exp_avg_sq_;
};

}  // namespace snug::optim
