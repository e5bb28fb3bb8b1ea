// Optimizers of PyTorch, bitsandbytes and DeepSpeed as they run on a GPU without further options:
// their states, what they need for the time of an update, and what ZeRO makes of weights and
// gradients.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "recipe/recipe.h"

namespace snug::plan::rivals {

class Optimizer {
 public:
  Optimizer() = default;
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  virtual void before_forward() {}
  // `is_last`: of the step's micro-batches.
  virtual void before_backward(bool /*is_last*/) {}
  virtual void after_backward() {}
  virtual void step() {}
  // Host memory of each GPU's process, between steps.
  virtual int64_t host_bytes() const { return 0; }
  // In memory that the driver moves between device and host.
  virtual int64_t paged_bytes() const { return 0; }
};

struct UpdateOrder {
  // One call for all weights, as PyTorch has it from 2.0 on; otherwise one weight after another.
  bool foreach = true;
  // All first moments are made before the second ones; otherwise both of a weight together.
  bool moment_by_moment = false;
  // One kernel for an update of AdamW, which needs no memory beside the states.
  bool fused = false;
  // The first weight, an embedding, has float32 states where others have 8-bit ones.
  bool first_in_float32 = false;
  // Weights, states and the update are on the host.
  bool on_host = false;
};

// adamw, sgd and adamw_8bit. The weights stay the caller's.
std::unique_ptr<Optimizer> torch_optimizer(const recipe::OptimizerOptions& options,
                                           const std::vector<at::Tensor>& weights,
                                           UpdateOrder order);

// bitsandbytes' PagedAdamW and PagedAdamW8bit: states of which the large ones are none of the
// allocator's, and no temporaries.
struct PagedStates {
  bool eight_bits = false;  // else float32
  bool first_in_float32 = false;
};
std::unique_ptr<Optimizer> paged_adamw(const std::vector<at::Tensor>& weights, PagedStates states);

// DeepSpeed's Adam on the host. ZeRO-2: gradients leave the device as they come.
std::unique_ptr<Optimizer> zero2_on_host(const std::vector<at::Tensor>& weights);
// ZeRO-3: on each GPU its part of the 16-bit weights, what is gathered of them, and the bucket in
// which gradients travel; on the host the float32 weights, gradients and Adam's states of that
// part. `weights` in the order of the forward, whole on the GPU as they are when DeepSpeed starts;
// it takes them apart.
std::unique_ptr<Optimizer> zero3_on_host(std::vector<at::Tensor> weights, int64_t ranks);

// Elements of the weights that are there at most under ZeRO-3, by DeepSpeed's own rule: a layer's
// are gathered for its use and ahead of it up to the prefetch bucket, and kept where they are used
// again within the reuse distance. `layers`: elements of each layer in the order of the forward.
int64_t most_gathered(const std::vector<int64_t>& layers);

}  // namespace snug::plan::rivals
