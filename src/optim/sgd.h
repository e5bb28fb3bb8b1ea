// Stochastic gradient descent with optional momentum, as torch.optim.SGD.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "optim/optimizer.h"

namespace snug::optim {

// Without momentum there is no state at all.
class Sgd final : public Optimizer {
 public:
  Sgd(const config::OptimizerOptions& options, std::vector<NamedTensor> parameters, uint64_t seed);

 protected:
  void update_range(Range range, const StepOptions& step) override;
  void append_states(size_t parameter, std::vector<NamedTensor>& all) const override;

 private:
  std::vector<at::Tensor> momentum_;  // empty without momentum
};

}  // namespace snug::optim
