// Backward of one unit's graph, on the calling thread. libtorch's own engine keeps a queue per
// thread, which survives a failed pass together with its tensors. Here a pass frees everything it
// holds when it fails, so a run can go on after running out of memory in a backward. Nodes run in
// the engine's order (latest first) and release their saved tensors as soon as they have run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace snug::exec {

// Adds the gradients of sum(outputs · gradients) to the leaves' .grad. The graph can run once.
// `gradients` are consumed.
void backward(const std::vector<at::Tensor>& outputs, std::vector<at::Tensor> gradients);

}  // namespace snug::exec
