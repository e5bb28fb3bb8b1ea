// Adafactor (Shazeer & Stern 2018), as torch.optim.Adafactor: no momentum, and of a matrix's second
// moment only the means of its rows and columns.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "optim/optimizer.h"

namespace snug::optim {

// Factors are float32 whatever the weights' type (torch keeps them in the gradients' type), and so
// is the epsilon that bounds them.
class Adafactor final : public Optimizer {
 public:
  Adafactor(const config::OptimizerOptions& options, std::vector<NamedTensor> parameters,
            uint64_t seed);

 protected:
  void update_range(Range range, const StepOptions& step) override;
  void append_states(size_t parameter, std::vector<NamedTensor>& all) const override;

 private:
  std::vector<at::Tensor> row_var_;  // (R, 1), undefined for vectors
  std::vector<at::Tensor> col_var_;  // (1, C), or a vector's variance
};

}  // namespace snug::optim
