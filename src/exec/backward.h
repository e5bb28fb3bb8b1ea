// Backward of one unit's graph, on the calling thread. libtorch's own engine keeps a queue per
// thread that outlives a failed pass, with the tensors in it; here everything a pass holds dies
// with it, so that running out of memory inside a backward gives all of it back. Nodes run in the
// engine's order (latest first), and release what they saved as soon as they have run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace snug::exec {

// Adds the gradients of sum(outputs · gradients) to the leaves' .grad. The graph can run once.
// `gradients` are consumed.
void backward(const std::vector<at::Tensor>& outputs, std::vector<at::Tensor> gradients);

}  // namespace snug::exec
