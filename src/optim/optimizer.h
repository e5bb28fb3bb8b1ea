// An optimizer steps a list of tensors whose gradients are in their .grad. Its states are named, so
// that a checkpoint can hold them and the ledger can count them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "config/recipe.h"

namespace snug::optim {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

struct StepOptions {
  double lr = 0;
  double gradient_scale = 1;  // multiplies every gradient: clipping and loss unscaling
};

class Optimizer {
 public:
  explicit Optimizer(std::vector<NamedTensor> parameters) : parameters_(std::move(parameters)) {}
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // One update of every parameter that has a gradient.
  void step(const StepOptions& options) {
    ++num_steps_;
    update(options);
  }
  // "model.norm.weight.exp_avg" …: everything a resumed run needs besides the step count.
  virtual std::vector<NamedTensor> states() = 0;

  int64_t num_steps() const { return num_steps_; }
  void set_num_steps(int64_t steps) { num_steps_ = steps; }

 protected:
  virtual void update(const StepOptions& options) = 0;

  std::vector<NamedTensor> parameters_;
  int64_t num_steps_ = 0;
};

// States are allocated here, zeroed and tagged as optimizer, so that a run that starts has them.
std::unique_ptr<Optimizer> make_optimizer(const config::OptimizerOptions& options,
                                          std::vector<NamedTensor> parameters);

// Global norm of the gradients (unscaled by gradient_scale) in double; infinite or NaN when one
// element is. Frees nothing.
double gradient_norm(const std::vector<NamedTensor>& parameters);

}  // namespace snug::optim
