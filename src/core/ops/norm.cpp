// SPDX-License-Identifier: Apache-2.0
#include "core/ops/norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "base/error.h"
#include "core/dist/group.h"
#include "core/kernels/rms_norm.h"
#include "core/ops/device/cuda.h"
#include "core/ops/device/device.h"
#include "core/ops/device/kept.h"
#include "core/ops/elementwise.h"
#include "core/ops/vector_gradient.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Of weights that there may be none of.
kernels::Scalar weight_type(const at::Tensor& weight) {
  return weight.defined() ? to_scalar(weight.scalar_type()) : kernels::Scalar::F32;
}

at::Tensor row_buffer(const at::Tensor& x) {
  return at::empty({x.size(0)}, x.options().dtype(at::kFloat));
}

kernels::RmsNormForward forward_args(const at::Tensor& x, const at::Tensor& weight,
                                     const RmsNormOptions& options, const at::Tensor& y,
                                     const at::Tensor& rstd) {
  return {.type = to_scalar(x.scalar_type()),
          .weight_type = weight_type(weight),
          .form = options.form,
          .rows = x.size(0),
          .dim = x.size(1),
          .x = read_pointer(x),
          .weight = read_pointer(weight),
          .eps = static_cast<float>(options.eps),
          .y = write_pointer(y),
          .rstd = write_pointer<float>(rstd)};
}

void run_forward(const at::Tensor& x, const kernels::RmsNormForward& args) {
  run_on(
      x, [&] { kernels::cpu::rms_norm_forward(args); }, [&] { cuda::rms_norm_forward(args); });
}

// The product that takes y keeps it; x is kept anyway.
void recompute_on_request(const at::Tensor& y, const at::Tensor& x, const at::Tensor& weight,
                          const RmsNormOptions& options) {
  if (options.feeds != NormFeeds::Product) return;
  SNUG_CHECK(weight.defined(), "a norm without a weight feeds no product");
  may_recompute(y.detach(), [y = y.detach(), x = x.detach(), weight = weight.detach(), options] {
    const at::Tensor rstd = row_buffer(x);
    run_forward(x, forward_args(x, weight, options, y, rstd));
  });
}

// The group outlives the graph: the ranks that share a model do.
void remember(AutogradContext* ctx, const at::Tensor& weight, const RmsNormOptions& options) {
  ctx->saved_data["weight"] = weight;
  ctx->saved_data["form"] = static_cast<int64_t>(options.form);
  ctx->saved_data["rows_of"] = reinterpret_cast<int64_t>(options.rows_of);
}

struct NormGradient {
  at::Tensor dy, d_residual;  // the latter may be undefined
  at::Tensor dx;              // is written, and may be what was normed
};

// dx, with d_residual added; the weight's gradient goes into its buffer.
void norm_backward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& rstd,
                   const NormGradient& of) {
  const at::Tensor weight = ctx->saved_data["weight"].toTensor();
  auto* rows_of = reinterpret_cast<dist::Group*>(ctx->saved_data["rows_of"].toInt());
  VectorGradient d_weight(weight, rows_of);
  const kernels::RmsNormBackward args{
      .type = to_scalar(x.scalar_type()),
      .weight_type = weight_type(weight),
      .form = static_cast<kernels::NormForm>(ctx->saved_data["form"].toInt()),
      .rows = x.size(0),
      .dim = x.size(1),
      .dy = read_pointer(of.dy),
      .x = read_pointer(x),
      .weight = read_pointer(weight),
      .rstd = read_pointer<float>(rstd),
      .d_residual = read_pointer(of.d_residual),
      .dx = write_pointer(of.dx),
      .dweight = d_weight.target()};
  if (kernel_device(x) == at::kCUDA)
    with_workspace(x, d_weight.is_wanted() ? cuda::rms_norm_backward_workspace_bytes(args.dim) : 0,
                   [&](void* scratch) { cuda::rms_norm_backward(args, scratch); });
  else if (!x.is_meta())
    kernels::cpu::rms_norm_backward(args);
  d_weight.start();
  d_weight.finish();
}

at::Tensor norm_backward(AutogradContext* ctx, const at::Tensor& dy, const at::Tensor& d_residual) {
  const variable_list saved = ctx->get_saved_variables();
  at::Tensor dx = at::empty_like(saved[0]);
  norm_backward(ctx, saved[0], saved[1], {dy, d_residual, dx});
  return dx;
}

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const std::optional<at::Tensor>& given, const RmsNormOptions& options) {
    const at::Tensor weight = given.value_or(at::Tensor());
    at::Tensor y = at::empty_like(x);
    const at::Tensor rstd = row_buffer(x);
    run_forward(x, forward_args(x, weight, options, y, rstd));
    keep(ctx, {x, rstd});
    recompute_on_request(y, x, weight, options);
    remember(ctx, weight, options);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {norm_backward(ctx, grads[0].contiguous(), {}), {}, {}};
  }
};

// The sum of x and a residual, or x itself, and its norm.
struct AddRmsNormFunction : torch::autograd::Function<AddRmsNormFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x,
                               const std::optional<at::Tensor>& residual, const at::Tensor& weight,
                               const RmsNormOptions& options) {
    at::Tensor sum = residual ? at::empty_like(x) : x;
    at::Tensor y = at::empty_like(x);
    const at::Tensor rstd = row_buffer(x);
    kernels::RmsNormForward args = forward_args(x, weight, options, y, rstd);
    if (residual) {
      args.residual = read_pointer(*residual);
      args.sum = write_pointer(sum);
    }
    run_forward(x, args);
    keep(ctx, {sum, rstd});
    ctx->saved_data["adds"] = residual.has_value();
    recompute_on_request(y, sum, weight, options);
    remember(ctx, weight, options);
    return {sum, y};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor dx = norm_backward(ctx, grads[1].contiguous(), grads[0].contiguous());
    return {dx, ctx->saved_data["adds"].toBool() ? dx : at::Tensor(), {}, {}};
  }
};

struct GatedRmsNormFunction : torch::autograd::Function<GatedRmsNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate, const at::Tensor& x,
                            const at::Tensor& weight, const RmsNormOptions& options) {
    at::Tensor y = gated(gate, x, Activation::Silu);
    const at::Tensor rstd = row_buffer(x);
    run_forward(y, forward_args(y, weight, options, y, rstd));
    keep(ctx, {gate, x, rstd});
    if (options.feeds == NormFeeds::Product)
      may_recompute(y.detach(), [y = y.detach(), gate = gate.detach(), x = x.detach(),
                                 weight = weight.detach(), options] {
        const at::Tensor product = gated(gate, x, Activation::Silu);
        run_forward(x, forward_args(product, weight, options, y, row_buffer(x)));
      });
    remember(ctx, weight, options);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &gate = saved[0], &x = saved[1];
    const at::Tensor product = gated(gate, x, Activation::Silu);
    norm_backward(ctx, product, saved[2], {grads[0].contiguous(), {}, product});
    gated_backward_in_place(product, gate, x, Activation::Silu);
    return {gate, x, {}, {}};
  }
};

// A sum of each row over the ranks' features: (N, 1).
at::Tensor sum_of_rows(const at::Tensor& products, dist::Group& features_of) {
  at::Tensor sums = products.sum(1, /*keepdim=*/true);
  features_of.wait(features_of.all_reduce(sums));
  return sums;
}

struct CutRmsNormFunction : torch::autograd::Function<CutRmsNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            double eps, int64_t whole, dist::Group* features_of) {
    const at::Tensor wide = x.to(at::kFloat);
    const at::Tensor rstd = sum_of_rows(wide.mul(wide), *features_of)
                                .div_(static_cast<double>(whole))
                                .add_(eps)
                                .rsqrt_();
    at::Tensor y = wide.mul(rstd).mul_(weight.to(at::kFloat)).to(x.scalar_type());
    keep(ctx, {x, rstd});
    ctx->saved_data["weight"] = weight;
    ctx->saved_data["whole"] = whole;
    // Outlives the graph: the ranks that share a model do.
    ctx->saved_data["features_of"] = reinterpret_cast<int64_t>(features_of);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor weight = ctx->saved_data["weight"].toTensor();
    const auto whole = static_cast<double>(ctx->saved_data["whole"].toInt());
    auto* group = reinterpret_cast<dist::Group*>(ctx->saved_data["features_of"].toInt());
    const at::Tensor normed = saved[0].to(at::kFloat).mul(saved[1]);  // x * rstd
    at::Tensor dy = grads[0].to(at::kFloat);
    if (weight.requires_grad()) add_to_gradient(weight, dy.mul(normed).sum(0));
    dy = dy.mul(weight.to(at::kFloat));
    const at::Tensor mean = sum_of_rows(dy.mul(normed), *group).div_(whole);
    return {dy.sub_(normed.mul(mean)).mul_(saved[1]).to(saved[0].scalar_type()), {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor cut_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, int64_t whole,
                        dist::Group& features_of) {
  return CutRmsNormFunction::apply(x, weight, eps, whole, &features_of);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, const RmsNormOptions& options) {
  return RmsNormFunction::apply(x, weight.defined() ? std::optional(weight) : std::nullopt,
                                options);
}

at::Tensor gated_rms_norm(const at::Tensor& gate, const at::Tensor& x, const at::Tensor& weight,
                          const RmsNormOptions& options) {
  return GatedRmsNormFunction::apply(gate, x, weight, options);
}

std::pair<at::Tensor, at::Tensor> rms_norm_beside(const at::Tensor& x, const at::Tensor& weight,
                                                  const RmsNormOptions& options) {
  const variable_list outputs = AddRmsNormFunction::apply(x, std::nullopt, weight, options);
  return {outputs[0], outputs[1]};
}

std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& residual,
                                               const at::Tensor& weight,
                                               const RmsNormOptions& options) {
  const variable_list outputs =
      AddRmsNormFunction::apply(x, std::optional(residual), weight, options);
  return {outputs[0], outputs[1]};
}

}  // namespace snug::ops
