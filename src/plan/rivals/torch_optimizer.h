// Optimizers of PyTorch, bitsandbytes and DeepSpeed as they run on a GPU without further options:
// their states, and what they need for the time of an update.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "recipe/recipe.h"

namespace snug::plan {

class TorchOptimizer {
 public:
  // Throws UserError for an optimizer that none of them has. With optimizer_offload it is
  // DeepSpeed's on the host, under ZeRO-2: gradients leave the device as they come. `foreach`: one
  // call for all weights, as PyTorch has it from 2.0 on; otherwise one weight after another.
  TorchOptimizer(const recipe::Recipe& recipe, const std::vector<at::Tensor>& weights,
                 bool foreach);
  ~TorchOptimizer();
  TorchOptimizer(const TorchOptimizer&) = delete;
  TorchOptimizer& operator=(const TorchOptimizer&) = delete;

  void before_backward();
  void after_backward();
  void step();
  bool is_on_host() const { return on_host_; }
  // Float32 weights, gradients and two states.
  int64_t host_bytes() const;

 private:
  void make_states();

  recipe::OptimizerOptions options_;
  bool on_host_, foreach_;
  const std::vector<at::Tensor>& weights_;
  std::vector<at::Tensor> states_;
  std::vector<at::Tensor> buffers_;  // on their way to the host
  at::Tensor largest_;               // gradient, scaled before it goes
};

}  // namespace snug::plan
