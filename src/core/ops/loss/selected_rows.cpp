// SPDX-License-Identifier: Apache-2.0
#include "core/ops/loss/selected_rows.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/ops/embedding.h"
#include "core/ops/pictures.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SelectRowsFunction : torch::autograd::Function<SelectRowsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& rows) {
    ctx->saved_data["rows"] = rows;
    ctx->saved_data["num_rows"] = x.size(0);
    at::Tensor selected = at::empty({rows.size(0), x.size(1)}, x.options().requires_grad(false));
    look_up(selected, rows, x, {});
    return selected;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor rows = ctx->saved_data["rows"].toTensor();
    const at::Tensor gradient = grads[0].contiguous();
    const at::Tensor all = at::zeros({ctx->saved_data["num_rows"].toInt(), gradient.size(1)},
                                     gradient.options().requires_grad(false));
    put_rows(all, gradient, rows);
    return {all, {}};
  }
};

}  // namespace

at::Tensor select_rows(const at::Tensor& x, const at::Tensor& rows) {
  return SelectRowsFunction::apply(x.contiguous(), rows);
}

}  // namespace snug::ops
