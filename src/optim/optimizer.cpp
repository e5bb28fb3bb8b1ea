// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.h"

#include <cmath>

#include "base/error.h"
#include "ops/elementwise.h"
#include "optim/adamw.h"
#include "optim/sgd.h"

namespace snug::optim {

void Optimizer::update(Range range, const StepOptions& options) {
  SNUG_CHECK(range.first <= range.last && range.last <= parameters_.size(),
             "parameters {} to {} of {}", range.first, range.last, parameters_.size());
  SNUG_CHECK(num_steps_ >= 1, "an update before begin_step()");
  update_range(range, options);
}

std::vector<NamedTensor> Optimizer::states(Range range) const {
  std::vector<NamedTensor> all;
  for (size_t i = range.first; i < range.last; ++i) append_states(i, all);
  return all;
}

std::unique_ptr<Optimizer> make_optimizer(const config::OptimizerOptions& options,
                                          std::vector<NamedTensor> parameters) {
  if (options.name == "adamw") return std::make_unique<AdamW>(options, std::move(parameters));
  if (options.name == "sgd") return std::make_unique<Sgd>(options, std::move(parameters));
  throw UserError("optimizer \"{}\" is not in this version yet; use AdamW or SGD", options.name);
}

double gradient_norm(const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const NamedTensor& parameter : parameters)
    if (parameter.tensor.grad().defined()) gradients.push_back(parameter.tensor.grad());
  return std::sqrt(ops::sum_of_squares(gradients));
}

}  // namespace snug::optim
