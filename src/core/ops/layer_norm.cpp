// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "base/error.h"
#include "core/dist/group.h"
#include "core/kernels/layer_norm.h"
#include "core/ops/device/cuda.h"
#include "core/ops/device/device.h"
#include "core/ops/device/kept.h"
#include "core/ops/norm.h"
#include "core/ops/vector_gradient.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Weight and bias; either may be undefined. `rows_of` sums their gradients: core/ops/norm.h.
struct Affine {
  at::Tensor weight, bias;
  dist::Group* rows_of = nullptr;

  at::ScalarType type() const {
    if (weight.defined()) return weight.scalar_type();
    return bias.defined() ? bias.scalar_type() : at::kFloat;
  }
};

// One value per row, kept for the backward.
struct Statistics {
  explicit Statistics(const at::Tensor& x)
      : mean(at::empty({x.size(0)}, x.options().dtype(at::kFloat))),
        rstd(at::empty({x.size(0)}, x.options().dtype(at::kFloat))) {}
  at::Tensor mean, rstd;
};

kernels::LayerNormForward forward_args(const at::Tensor& x, const Affine& affine, double eps,
                                       const at::Tensor& y, const Statistics& statistics) {
  for (const at::Tensor* t : {&affine.weight, &affine.bias})
    SNUG_CHECK(!t->defined() || (t->numel() == x.size(1) && t->scalar_type() == affine.type()),
               "a layer norm of rows of {} has a weight or bias of {}, or of two types", x.size(1),
               t->numel());
  return {.type = to_scalar(x.scalar_type()),
          .weight_type = to_scalar(affine.type()),
          .rows = x.size(0),
          .dim = x.size(1),
          .x = read_pointer(x),
          .weight = read_pointer(affine.weight),
          .bias = read_pointer(affine.bias),
          .eps = static_cast<float>(eps),
          .y = write_pointer(y),
          .mean = write_pointer<float>(statistics.mean),
          .rstd = write_pointer<float>(statistics.rstd)};
}

void run_forward(const at::Tensor& x, const kernels::LayerNormForward& args) {
  run_on(
      x, [&] { kernels::cpu::layer_norm_forward(args); }, [&] { cuda::layer_norm_forward(args); });
}

at::Tensor detached(const at::Tensor& t) { return t.defined() ? t.detach() : t; }

// The product after the norm saves y, which can be recomputed from x, which is saved anyway.
void recompute_on_request(const at::Tensor& y, const at::Tensor& x, const Affine& affine,
                          double eps) {
  const Affine values{detached(affine.weight), detached(affine.bias), nullptr};
  may_recompute(y.detach(), [y = y.detach(), x = x.detach(), values, eps] {
    run_forward(x, forward_args(x, values, eps, y, Statistics(x)));
  });
}

// A plain pointer is enough: the group outlives the graph.
void remember_affine(AutogradContext* ctx, const Affine& affine) {
  ctx->saved_data["rows_of"] = reinterpret_cast<int64_t>(affine.rows_of);
  if (affine.weight.defined()) ctx->saved_data["weight"] = affine.weight;
  if (affine.bias.defined()) ctx->saved_data["bias"] = affine.bias;
}
Affine remembered_affine(AutogradContext* ctx) {
  const auto get = [&](const char* name) {
    const auto found = ctx->saved_data.find(name);
    return found == ctx->saved_data.end() ? at::Tensor() : found->second.toTensor();
  };
  return {get("weight"), get("bias"),
          reinterpret_cast<dist::Group*>(ctx->saved_data["rows_of"].toInt())};
}

// dx, with d_residual (may be undefined) added; weight's and bias's gradients go into their
// buffers.
at::Tensor norm_backward(const at::Tensor& dy, const variable_list& saved, const Affine& affine,
                         const at::Tensor& d_residual) {
  const at::Tensor& x = saved[0];
  at::Tensor dx = at::empty_like(x);
  VectorGradient d_weight(affine.weight, affine.rows_of), d_bias(affine.bias, affine.rows_of);
  const kernels::LayerNormBackward args{.type = to_scalar(x.scalar_type()),
                                        .weight_type = to_scalar(affine.type()),
                                        .rows = x.size(0),
                                        .dim = x.size(1),
                                        .dy = read_pointer(dy),
                                        .x = read_pointer(x),
                                        .weight = read_pointer(affine.weight),
                                        .mean = read_pointer<float>(saved[1]),
                                        .rstd = read_pointer<float>(saved[2]),
                                        .d_residual = read_pointer(d_residual),
                                        .dx = write_pointer(dx),
                                        .dweight = d_weight.target(),
                                        .dbias = d_bias.target()};
  const int gradients = (d_weight.is_wanted() ? 1 : 0) + (d_bias.is_wanted() ? 1 : 0);
  if (kernel_device(x) == at::kCUDA)
    with_workspace(x, cuda::layer_norm_backward_workspace_bytes(args.dim, gradients),
                   [&](void* scratch) { cuda::layer_norm_backward(args, scratch); });
  else if (!x.is_meta())
    kernels::cpu::layer_norm_backward(args);
  for (VectorGradient* gradient : {&d_weight, &d_bias}) gradient->start();
  for (VectorGradient* gradient : {&d_weight, &d_bias}) gradient->finish();
  return dx;
}

struct LayerNormFunction : torch::autograd::Function<LayerNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, double eps,
                            dist::Group* rows_of) {
    const Affine affine{weight.value_or(at::Tensor()), bias.value_or(at::Tensor()), rows_of};
    at::Tensor y = at::empty_like(x);
    const Statistics statistics(x);
    run_forward(x, forward_args(x, affine, eps, y, statistics));
    keep(ctx, {x, statistics.mean, statistics.rstd});
    recompute_on_request(y, x, affine, eps);
    remember_affine(ctx, affine);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {norm_backward(grads[0].contiguous(), ctx->get_saved_variables(), remembered_affine(ctx),
                          {}),
            {},
            {},
            {},
            {}};
  }
};

// The sum of x and a residual, or x itself, and its norm.
struct AddLayerNormFunction : torch::autograd::Function<AddLayerNormFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x,
                               const std::optional<at::Tensor>& residual,
                               const std::optional<at::Tensor>& weight,
                               const std::optional<at::Tensor>& bias, double eps,
                               dist::Group* rows_of) {
    const Affine affine{weight.value_or(at::Tensor()), bias.value_or(at::Tensor()), rows_of};
    at::Tensor sum = residual ? at::empty_like(x) : x;
    at::Tensor y = at::empty_like(x);
    const Statistics statistics(x);
    kernels::LayerNormForward args = forward_args(x, affine, eps, y, statistics);
    if (residual) {
      args.residual = read_pointer(*residual);
      args.sum = write_pointer(sum);
    }
    run_forward(x, args);
    keep(ctx, {sum, statistics.mean, statistics.rstd});
    ctx->saved_data["adds"] = residual.has_value();
    recompute_on_request(y, sum, affine, eps);
    remember_affine(ctx, affine);
    return {sum, y};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor dx = norm_backward(grads[1].contiguous(), ctx->get_saved_variables(),
                                        remembered_affine(ctx), grads[0].contiguous());
    return {dx, ctx->saved_data["adds"].toBool() ? dx : at::Tensor(), {}, {}, {}, {}};
  }
};

std::optional<at::Tensor> if_defined(const at::Tensor& t) {
  return t.defined() ? std::optional(t) : std::nullopt;
}

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double eps, dist::Group* rows_of) {
  return LayerNormFunction::apply(x, if_defined(weight), if_defined(bias), eps, rows_of);
}

std::pair<at::Tensor, at::Tensor> layer_norm_beside(const at::Tensor& x, const at::Tensor& weight,
                                                    const at::Tensor& bias, double eps,
                                                    dist::Group* rows_of) {
  const variable_list outputs = AddLayerNormFunction::apply(x, std::nullopt, if_defined(weight),
                                                            if_defined(bias), eps, rows_of);
  return {outputs[0], outputs[1]};
}

std::pair<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                 const at::Tensor& weight, const at::Tensor& bias,
                                                 double eps, dist::Group* rows_of) {
  const variable_list outputs = AddLayerNormFunction::apply(
      x, std::optional(residual), if_defined(weight), if_defined(bias), eps, rows_of);
  return {outputs[0], outputs[1]};
}

}  // namespace snug::ops
