// Stochastic gradient descent with optional momentum, as torch.optim.SGD.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "optim/optimizer.h"

namespace snug::optim {

// Without momentum there is no state at all.
class Sgd final : public Optimizer {
 public:
  Sgd(const config::OptimizerOptions& options, std::vector<NamedTensor> parameters);
  std::vector<NamedTensor> states() override;

 protected:
  void update(const StepOptions& options) override;

 private:
  config::OptimizerOptions options_;
  std::vector<at::Tensor> momentum_;  // empty without momentum
};

}  // namespace snug::optim
