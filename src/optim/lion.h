// Lion (Chen et al. 2023): the sign of a momentum, one state.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "optim/optimizer.h"

namespace snug::optim {

class Lion final : public Optimizer {
 public:
  Lion(const config::OptimizerOptions& options, std::vector<NamedTensor> parameters, uint64_t seed);

 protected:
  void update_range(Range range, const StepOptions& step) override;
  void append_states(size_t parameter, std::vector<NamedTensor>& all) const override;

 private:
  std::vector<at::Tensor> exp_avg_;
};

}  // namespace snug::optim
