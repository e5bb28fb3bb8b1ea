// An operator of another library for autograd on meta: what it allocates is made by whoever calls
// record(), which adds what it keeps, and what its backward allocates.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace snug::plan::rivals {

using Sizes = std::vector<int64_t>;
using Tensors = torch::autograd::variable_list;
// From what an operator keeps and the gradient of its result to those of its inputs.
using Gradients = std::function<Tensors(const Tensors& kept, const at::Tensor& gradient)>;

// `result` as that of an operator of these inputs; what is kept lives until its backward.
at::Tensor record(const at::Tensor& result, const Tensors& inputs, const Tensors& kept,
                  Gradients gradients);

// On the device of `like`, in its type or another.
at::Tensor make(const Sizes& sizes, const at::Tensor& like);
at::Tensor make(const Sizes& sizes, const at::Tensor& like, at::ScalarType type);

}  // namespace snug::plan::rivals
