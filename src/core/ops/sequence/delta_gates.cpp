// SPDX-License-Identifier: Apache-2.0
#include "core/ops/sequence/delta_gates.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/ops/device/kept.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Small tensors, a number for each token and head: libtorch's operators serve.
struct DeltaGatesFunction : torch::autograd::Function<DeltaGatesFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& a, const at::Tensor& b,
                               const at::Tensor& a_log, const at::Tensor& dt_bias) {
    keep(ctx, {a, b});
    ctx->saved_data["a_log"] = a_log.detach();
    ctx->saved_data["dt_bias"] = dt_bias.detach();
    at::Tensor g = at::softplus(at::add(a.to(at::kFloat), dt_bias));
    g.mul_(a_log.exp().neg_());
    return {g, at::sigmoid(b.to(at::kFloat))};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor rate = ctx->saved_data["a_log"].toTensor().exp();
    const at::Tensor x = at::add(saved[0].to(at::kFloat), ctx->saved_data["dt_bias"].toTensor());
    // Of g: to a_log g itself, to x minus the rate times the slope of softplus.
    const at::Tensor da_log = at::mul(grads[0], at::softplus(x)).mul_(rate).sum(0).neg_();
    const at::Tensor dx = at::mul(grads[0], at::sigmoid(x)).mul_(rate).neg_();
    const at::Tensor beta = at::sigmoid(saved[1].to(at::kFloat));
    const at::Tensor db = at::mul(grads[1], beta).mul_(1 - beta);
    return {dx.to(saved[0].scalar_type()), db.to(saved[1].scalar_type()), da_log, dx.sum(0)};
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> delta_gates(const at::Tensor& a, const at::Tensor& b,
                                              const at::Tensor& a_log, const at::Tensor& dt_bias) {
  const variable_list gates = DeltaGatesFunction::apply(a, b, a_log, dt_bias);
  return {gates[0], gates[1]};
}

}  // namespace snug::ops
