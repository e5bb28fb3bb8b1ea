// SPDX-License-Identifier: Apache-2.0
#include "core/ops/norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/dist/group.h"
#include "core/kernels/cpu/rms_norm.h"
#include "core/ops/device/cuda.h"
#include "core/ops/device/device.h"
#include "core/ops/device/kept.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor row_buffer(const at::Tensor& x) {
  return at::empty({x.size(0)}, x.options().dtype(at::kFloat));
}

kernels::cpu::RmsNormForward forward_args(const at::Tensor& x, const at::Tensor& weight, double eps,
                                          const at::Tensor& y, const at::Tensor& rstd) {
  return {.type = to_scalar(x.scalar_type()),
          .weight_type = to_scalar(weight.scalar_type()),
          .rows = x.size(0),
          .dim = x.size(1),
          .x = read_pointer(x),
          .weight = read_pointer(weight),
          .eps = static_cast<float>(eps),
          .y = write_pointer(y),
          .rstd = write_pointer<float>(rstd)};
}

void run_forward(const at::Tensor& x, const kernels::cpu::RmsNormForward& args) {
  run_on(
      x, [&] { kernels::cpu::rms_norm_forward(args); }, [&] { cuda::rms_norm_forward(args); });
}

// The product that takes y keeps it; x is kept anyway.
void recompute_on_request(const at::Tensor& y, const at::Tensor& x, const at::Tensor& weight,
                          double eps) {
  may_recompute(y.detach(), [y = y.detach(), x = x.detach(), weight = weight.detach(), eps] {
    const at::Tensor rstd = row_buffer(x);
    run_forward(x, forward_args(x, weight, eps, y, rstd));
  });
}

// Outlives the graph: the ranks that share a model do.
void remember(AutogradContext* ctx, dist::Group* group) {
  ctx->saved_data["rows_of"] = reinterpret_cast<int64_t>(group);
}
dist::Group* remembered(AutogradContext* ctx) {
  return reinterpret_cast<dist::Group*>(ctx->saved_data["rows_of"].toInt());
}

// dx, with d_residual (may be undefined) added; the weight's gradient goes into its buffer.
at::Tensor norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                         const at::Tensor& rstd, const at::Tensor& d_residual,
                         dist::Group* rows_of) {
  at::Tensor dx = at::empty_like(x);
  const bool trained = weight.requires_grad();
  at::Tensor d_weight;
  if (trained) d_weight = at::empty({x.size(1)}, x.options().dtype(at::kFloat));
  const kernels::cpu::RmsNormBackward args{.type = to_scalar(x.scalar_type()),
                                           .weight_type = to_scalar(weight.scalar_type()),
                                           .rows = x.size(0),
                                           .dim = x.size(1),
                                           .dy = read_pointer(dy),
                                           .x = read_pointer(x),
                                           .weight = read_pointer(weight),
                                           .rstd = read_pointer<float>(rstd),
                                           .d_residual = read_pointer(d_residual),
                                           .dx = write_pointer(dx),
                                           .dweight = write_pointer<float>(d_weight)};
  if (kernel_device(x) == at::kCUDA)
    with_workspace(x, trained ? cuda::rms_norm_backward_workspace_bytes(args.dim) : 0,
                   [&](void* scratch) { cuda::rms_norm_backward(args, scratch); });
  else if (!x.is_meta())
    kernels::cpu::rms_norm_backward(args);
  if (!trained) return dx;
  if (rows_of != nullptr) rows_of->wait(rows_of->all_reduce(d_weight));
  add_to_gradient(weight, d_weight);
  return dx;
}

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            double eps, dist::Group* rows_of) {
    at::Tensor y = at::empty_like(x);
    const at::Tensor rstd = row_buffer(x);
    run_forward(x, forward_args(x, weight, eps, y, rstd));
    keep(ctx, {x, rstd});
    recompute_on_request(y, x, weight, eps);
    ctx->saved_data["weight"] = weight;
    remember(ctx, rows_of);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    return {norm_backward(grads[0].contiguous(), saved[0], ctx->saved_data["weight"].toTensor(),
                          saved[1], {}, remembered(ctx)),
            {},
            {},
            {}};
  }
};

struct AddRmsNormFunction : torch::autograd::Function<AddRmsNormFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x,
                               const at::Tensor& residual, const at::Tensor& weight, double eps,
                               dist::Group* rows_of) {
    at::Tensor sum = at::empty_like(x);
    at::Tensor y = at::empty_like(x);
    const at::Tensor rstd = row_buffer(x);
    kernels::cpu::RmsNormForward args = forward_args(x, weight, eps, y, rstd);
    args.residual = read_pointer(residual);
    args.sum = write_pointer(sum);
    run_forward(x, args);
    keep(ctx, {sum, rstd});
    recompute_on_request(y, sum, weight, eps);
    ctx->saved_data["weight"] = weight;
    remember(ctx, rows_of);
    return {sum, y};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor dx =
        norm_backward(grads[1].contiguous(), saved[0], ctx->saved_data["weight"].toTensor(),
                      saved[1], grads[0].contiguous(), remembered(ctx));
    return {dx, dx, {}, {}, {}};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps,
                    dist::Group* rows_of) {
  return RmsNormFunction::apply(x, weight, eps, rows_of);
}

std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& residual,
                                               const at::Tensor& weight, double eps,
                                               dist::Group* rows_of) {
  const variable_list outputs = AddRmsNormFunction::apply(x, residual, weight, eps, rows_of);
  return {outputs[0], outputs[1]};
}

}  // namespace snug::ops
