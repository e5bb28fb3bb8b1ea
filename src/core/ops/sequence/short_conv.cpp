// SPDX-License-Identifier: Apache-2.0
#include "core/ops/sequence/short_conv.h"

#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>

#include "core/ops/device/cuda.h"
#include "core/ops/device/device.h"
#include "core/ops/device/kept.h"
#include "core/ops/vector_gradient.h"

namespace snug::ops {
namespace {

using kernels::ConvForm;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Arguments {
  ShortConv of;
  at::Tensor positions;
};

kernels::ShortConvForward forward_args(const at::Tensor& x, const Arguments& a,
                                       const at::Tensor& y) {
  return {.form = a.of.form,
          .type = to_scalar(x.scalar_type()),
          .weight_type = to_scalar(a.of.weight.scalar_type()),
          .rows = x.size(0),
          .features = a.of.weight.size(0),
          .taps = a.of.weight.size(1),
          .x = read_pointer(x),
          .positions = read_pointer<int32_t>(a.positions),
          .weight = read_pointer(a.of.weight),
          .bias = read_pointer(a.of.bias),
          .y = write_pointer(y)};
}

void run_forward(const at::Tensor& x, const Arguments& a, const at::Tensor& y) {
  const kernels::ShortConvForward args = forward_args(x, a, y);
  run_on(
      x, [&] { kernels::cpu::short_conv_forward(args); }, [&] { cuda::short_conv_forward(args); });
}

void remember(AutogradContext* ctx, const Arguments& a) {
  ctx->saved_data["form"] = static_cast<int64_t>(a.of.form);
  ctx->saved_data["weight"] = a.of.weight;
  if (a.of.bias.defined()) ctx->saved_data["bias"] = a.of.bias;
  ctx->saved_data["positions"] = a.positions;
}

Arguments remembered(AutogradContext* ctx) {
  const bool has_bias = ctx->saved_data.count("bias") > 0;
  return {
      {static_cast<ConvForm>(ctx->saved_data["form"].toInt()), ctx->saved_data["weight"].toTensor(),
       has_bias ? ctx->saved_data["bias"].toTensor() : at::Tensor()},
      ctx->saved_data["positions"].toTensor()};
}

struct ShortConvFunction : torch::autograd::Function<ShortConvFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const at::Tensor& positions,
                            ConvForm form) {
    const Arguments a{{form, weight, bias.value_or(at::Tensor())}, positions};
    at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
    run_forward(x, a, y);
    keep(ctx, {x});
    remember(ctx, a);
    // The product that takes y keeps it; x is kept anyway.
    may_recompute(y.detach(), [y = y.detach(), x = x.detach(), a] { run_forward(x, a, y); });
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor x = ctx->get_saved_variables()[0], dy = grads[0].contiguous();
    const Arguments a = remembered(ctx);
    const at::Tensor &weight = a.of.weight, dx = at::empty_like(x);
    VectorGradient dweight(weight, nullptr), dbias(a.of.bias, nullptr);
    const kernels::ShortConvBackward args{.forward = forward_args(x, a, {}),
                                          .dy = read_pointer(dy),
                                          .dx = write_pointer(dx),
                                          .dweight = dweight.target(),
                                          .dbias = dbias.target()};
    const int64_t sums = (dweight.is_wanted() ? weight.size(1) : 0) + (dbias.is_wanted() ? 1 : 0);
    if (kernel_device(x) == at::kCUDA)
      with_workspace(x, cuda::short_conv_backward_workspace_bytes(weight.size(0), sums),
                     [&](void* scratch) { cuda::short_conv_backward(args, scratch); });
    else if (!x.is_meta())
      kernels::cpu::short_conv_backward(args);
    return {dx, {}, {}, {}, {}};
  }
};

// The part `which` of b, c and x.
at::Tensor part(const at::Tensor& x, int64_t which) {
  const int64_t features = x.size(1) / 3;
  return x.narrow(1, which * features, features);
}

}  // namespace

at::Tensor short_conv(const at::Tensor& x, const ShortConv& convolution,
                      const at::Tensor& positions) {
  const std::optional<at::Tensor> bias =
      convolution.bias.defined() ? std::optional(convolution.bias) : std::nullopt;
  return ShortConvFunction::apply(x.contiguous(), convolution.weight, bias, positions,
                                  convolution.form);
}

at::Tensor short_conv_step(const at::Tensor& x, const ShortConv& convolution, at::Tensor& before) {
  const at::Tensor rows =
      at::cat({before, convolved_rows(x, convolution.form, x.size(0), 1)}, 1);  // (S, K, F)
  before = rows.slice(1, 1).contiguous();
  at::Tensor sum = at::sum(at::mul(rows.to(at::kFloat), convolution.weight.to(at::kFloat).t()), 1);
  if (convolution.bias.defined()) sum = at::add(sum, convolution.bias);
  const bool has_gates = convolution.form == ConvForm::Gates;
  return (has_gates ? at::mul(sum, part(x, 1)) : at::silu(sum)).to(x.scalar_type());
}

at::Tensor convolved_rows(const at::Tensor& x, ConvForm form, int64_t sequences, int64_t count) {
  const int64_t length = x.size(0) / sequences, taken = std::min(length, count);
  const auto last = [&](const at::Tensor& rows) {
    return rows.reshape({sequences, length, rows.size(1)}).slice(1, length - taken);
  };
  const at::Tensor rows =
      form == ConvForm::Gates ? at::mul(last(part(x, 0)), last(part(x, 2))) : last(x);
  return at::constant_pad_nd(rows, {0, 0, count - taken, 0});
}

}  // namespace snug::ops
