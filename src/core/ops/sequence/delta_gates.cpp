// SPDX-License-Identifier: Apache-2.0
#include "core/ops/sequence/delta_gates.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/sub.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/ops/device/carried.h"
#include "core/ops/device/kept.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A layer's parameters (H), which stay in memory.
struct OfHeads {
  at::Tensor a_log, dt_bias;
  StepLimits limits;
};

// Small tensors, a number for each token and head: libtorch's operators serve.
struct DeltaGatesFunction : torch::autograd::Function<DeltaGatesFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& a, const at::Tensor& b,
                               const at::Tensor& a_log, const at::Tensor& dt_bias) {
    keep(ctx, {a, b});
    carry(ctx, OfHeads{a_log.detach(), dt_bias.detach(), {}});
    at::Tensor g = at::softplus(at::add(a.to(at::kFloat), dt_bias));
    g.mul_(a_log.exp().neg_());
    return {g, at::sigmoid(b.to(at::kFloat))};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto& of = carried<OfHeads>(ctx);
    const at::Tensor rate = of.a_log.exp();
    const at::Tensor x = at::add(saved[0].to(at::kFloat), of.dt_bias);
    // Of g: to a_log g itself, to x minus the rate times the slope of softplus.
    const at::Tensor da_log = at::mul(grads[0], at::softplus(x)).mul_(rate).sum(0).neg_();
    const at::Tensor dx = at::mul(grads[0], at::sigmoid(x)).mul_(rate).neg_();
    const at::Tensor beta = at::sigmoid(saved[1].to(at::kFloat));
    const at::Tensor db = at::mul(grads[1], beta).mul_(1 - beta);
    return {dx.to(saved[0].scalar_type()), db.to(saved[1].scalar_type()), da_log, dx.sum(0)};
  }
};

struct MambaGatesFunction : torch::autograd::Function<MambaGatesFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& dt, const at::Tensor& a_log,
                               const at::Tensor& dt_bias, const StepLimits& limits) {
    keep(ctx, {dt});
    carry(ctx, OfHeads{a_log.detach(), dt_bias.detach(), limits});
    at::Tensor step = at::softplus(at::add(dt.to(at::kFloat), dt_bias));
    step.clamp_(limits.least, limits.most);
    return {at::mul(step, a_log.exp().neg_()), step};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor dt = ctx->get_saved_variables()[0];
    const auto& of = carried<OfHeads>(ctx);
    const at::Tensor rate = of.a_log.exp();
    const at::Tensor x = at::add(dt.to(at::kFloat), of.dt_bias);
    at::Tensor step = at::softplus(x);
    const at::Tensor below = at::lt(step, of.limits.least), above = at::gt(step, of.limits.most);
    step.clamp_(of.limits.least, of.limits.most);
    const at::Tensor da_log = at::mul(grads[0], step).mul_(rate).sum(0).neg_();
    at::Tensor dx = at::sub(grads[1], at::mul(grads[0], rate));
    // Beyond a limit nothing reaches dt.
    dx.mul_(at::sigmoid(x)).masked_fill_(below, 0).masked_fill_(above, 0);
    return {dx.to(dt.scalar_type()), da_log, dx.sum(0), {}};
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> delta_gates(const at::Tensor& a, const at::Tensor& b,
                                              const at::Tensor& a_log, const at::Tensor& dt_bias) {
  const variable_list gates = DeltaGatesFunction::apply(a, b, a_log, dt_bias);
  return {gates[0], gates[1]};
}

std::pair<at::Tensor, at::Tensor> mamba_gates(const at::Tensor& dt, const at::Tensor& a_log,
                                              const at::Tensor& dt_bias, const StepLimits& limits) {
  const variable_list gates = MambaGatesFunction::apply(dt, a_log, dt_bias, limits);
  return {gates[0], gates[1]};
}

}  // namespace snug::ops
