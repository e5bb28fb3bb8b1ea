// AdamW with block-wise 8-bit states (Dettmers et al. 2022), as bitsandbytes.optim.AdamW8bit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "optim/optimizer.h"

namespace snug::optim {

// Tensors of fewer than 4096 elements (norms, biases) keep float32 states, as they do there.
class AdamW8bit final : public Optimizer {
 public:
  AdamW8bit(const config::OptimizerOptions& options, std::vector<NamedTensor> parameters,
            uint64_t seed, const std::vector<int64_t>& whole_elements);

 protected:
  void update_range(Range range, const StepOptions& step) override;
  void append_states(size_t parameter, std::vector<NamedTensor>& all) const override;

 private:
  // Codes and one scale a block of 256; or float32 values and no scales.
  struct Moment {
    at::Tensor values;
    at::Tensor absmax;
  };
  bool is_quantized(size_t parameter) const { return exp_avg_[parameter].absmax.defined(); }

  std::vector<Moment> exp_avg_;
  std::vector<Moment> exp_avg_sq_;
};

}  // namespace snug::optim
