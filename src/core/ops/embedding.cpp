// SPDX-License-Identifier: Apache-2.0
#include "core/ops/embedding.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/kernels/embedding.h"
#include "core/ops/device/cuda.h"
#include "core/ops/device/device.h"
#include "core/ops/elementwise.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& ids, const at::Tensor& weight) {
    ctx->saved_data["ids"] = ids;
    ctx->saved_data["weight"] = weight;
    at::Tensor out =
        at::empty({ids.size(0), weight.size(1)}, weight.options().requires_grad(false));
    look_up(out, ids, weight, {});
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    add_row_gradients(ctx->saved_data["weight"].toTensor(), ctx->saved_data["ids"].toTensor(),
                      grads[0].contiguous(), {});
    return {{}, {}};
  }
};

}  // namespace

void look_up(const at::Tensor& out, const at::Tensor& ids, const at::Tensor& weight,
             const TablePart& part) {
  const kernels::EmbeddingForward args{.type = to_scalar(weight.scalar_type()),
                                       .tokens = ids.size(0),
                                       .vocabulary = weight.size(0),
                                       .first = part.first,
                                       .whole_vocabulary = part.whole,
                                       .dim = weight.size(1),
                                       .ids = read_pointer<int32_t>(ids),
                                       .weight = read_pointer(weight),
                                       .out = write_pointer(out)};
  run_on(
      weight, [&] { kernels::cpu::embedding_forward(args); },
      [&] {
        at::Tensor rows = out;
        if (part.whole == 0 && out.is_meta())  // libtorch has it for all devices but meta
          note_selected_rows(out, ids);
        else if (part.whole == 0)
          at::index_select_out(rows, weight, 0, ids);
        else
          cuda::embedding_forward(args);
      });
}

void add_row_gradients(const at::Tensor& weight, const at::Tensor& ids, const at::Tensor& d_out,
                       const TablePart& part) {
  const GradientBuffer gradient = gradient_buffer(weight);
  if (gradient.fresh) fill(gradient.tensor, 0);
  const kernels::EmbeddingBackward args{.type = to_scalar(d_out.scalar_type()),
                                        .grad_type = to_scalar(gradient.tensor.scalar_type()),
                                        .tokens = ids.size(0),
                                        .vocabulary = weight.size(0),
                                        .first = part.first,
                                        .whole_vocabulary = part.whole,
                                        .dim = weight.size(1),
                                        .ids = read_pointer<int32_t>(ids),
                                        .dy = read_pointer(d_out),
                                        .grad = write_pointer(gradient.tensor)};
  if (kernel_device(d_out) == at::kCUDA)
    with_workspace(d_out, cuda::embedding_backward_workspace_bytes(args.tokens, args.dim),
                   [&](void* scratch) { cuda::embedding_backward(args, scratch); });
  else if (!d_out.is_meta())
    kernels::cpu::embedding_backward(args);
}

at::Tensor embedding(const at::Tensor& ids, const at::Tensor& weight, at::ScalarType type) {
  const at::Tensor rows = EmbeddingFunction::apply(ids, weight);
  return rows.scalar_type() == type ? rows : rows.to(type);
}

}  // namespace snug::ops
