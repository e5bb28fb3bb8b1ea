// SPDX-License-Identifier: Apache-2.0
#include "core/ops/constant_scale.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mul.h>
#include <torch/csrc/autograd/custom_function.h>

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Not a saved variable: the weight may be put away and come back between forward and backward.
struct ScaleFunction : torch::autograd::Function<ScaleFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& factor) {
    ctx->saved_data["factor"] = factor;
    ctx->mark_dirty({x});
    return x.mul_(factor.select(0, 0));  // without dimensions it leaves x its type
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {at::mul(grads[0], ctx->saved_data["factor"].toTensor().select(0, 0)), {}};
  }
};

}  // namespace

at::Tensor scale_in_place(const at::Tensor& x, const at::Tensor& factor) {
  return ScaleFunction::apply(x, factor);
}

}  // namespace snug::ops
