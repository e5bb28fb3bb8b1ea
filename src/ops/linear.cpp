// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <optional>

#include "ops/device.h"
#include "ops/elementwise.h"
#include "ops/kept.h"
#include "ops/matmul.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  at::Tensor out = matmul(x, weight_in(x.scalar_type(), weight).t(), x.scalar_type());
  if (bias.defined()) out.add_(weight_in(x.scalar_type(), bias));
  return out;
}

at::Tensor input_gradient(const at::Tensor& d_out, const at::Tensor& weight) {
  return matmul(d_out, weight_in(d_out.scalar_type(), weight), d_out.scalar_type());
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    ctx->saved_data["weight"] = weight;
    ctx->saved_data["bias"] = bias.value_or(at::Tensor());
    if (weight.requires_grad()) keep(ctx, {x});
    return product(x, weight, bias.value_or(at::Tensor()));
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor d_out = grads[0].contiguous();
    const at::Tensor weight = ctx->saved_data["weight"].toTensor();
    const at::Tensor bias = ctx->saved_data["bias"].toTensor();
    if (weight.requires_grad()) add_weight_gradient(weight, d_out, ctx->get_saved_variables()[0]);
    if (bias.defined() && bias.requires_grad()) add_bias_gradient(bias, d_out);
    at::Tensor d_x;
    if (ctx->needs_input_grad(0)) d_x = input_gradient(d_out, weight);
    return {d_x, {}, {}};
  }
};

struct SwigluLinearFunction : torch::autograd::Function<SwigluLinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate, const at::Tensor& up,
                            const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
    ctx->saved_data["weight"] = weight;
    ctx->saved_data["bias"] = bias.value_or(at::Tensor());
    keep(ctx, {gate, up});
    return product(swiglu(gate, up), weight, bias.value_or(at::Tensor()));
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor d_out = grads[0].contiguous();
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor weight = ctx->saved_data["weight"].toTensor();
    const at::Tensor bias = ctx->saved_data["bias"].toTensor();
    if (weight.requires_grad()) add_weight_gradient(weight, d_out, swiglu(saved[0], saved[1]));
    if (bias.defined() && bias.requires_grad()) add_bias_gradient(bias, d_out);
    const at::Tensor d_product = input_gradient(d_out, weight);
    // gate and up are outputs of products, which nothing else needs: their memory takes the
    // gradients.
    swiglu_backward_in_place(d_product, saved[0], saved[1]);
    return {saved[0], saved[1], {}, {}};
  }
};

// Autograd tells an absent tensor apart from an undefined one.
std::optional<at::Tensor> if_defined(const at::Tensor& t) {
  return t.defined() ? std::optional<at::Tensor>(t) : std::nullopt;
}

}  // namespace

at::Tensor weight_in(at::ScalarType type, const at::Tensor& weight) {
  return weight.scalar_type() == type ? weight : cast(weight, type);
}

void add_weight_gradient(const at::Tensor& weight, const at::Tensor& d_out, const at::Tensor& x) {
  const GradientBuffer gradient = gradient_buffer(weight);
  matmul_into(gradient.tensor, d_out.t(), x, gradient.fresh ? Into::Overwrite : Into::Accumulate);
}

void add_bias_gradient(const at::Tensor& bias, const at::Tensor& d_out) {
  const at::Tensor sum = d_out.sum(0, /*keepdim=*/false, at::kFloat);
  add_to_gradient(bias, sum);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return LinearFunction::apply(x, weight, if_defined(bias));
}

at::Tensor swiglu_linear(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& weight,
                         const at::Tensor& bias) {
  return SwigluLinearFunction::apply(gate, up, weight, if_defined(bias));
}

}  // namespace snug::ops
