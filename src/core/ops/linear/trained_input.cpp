// SPDX-License-Identifier: Apache-2.0
#include "core/ops/linear/trained_input.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/dist/group.h"
#include "core/ops/device/device.h"
#include "core/ops/elementwise.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct TrainedInputFunction : torch::autograd::Function<TrainedInputFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& parameter, at::ScalarType type,
                            dist::Group* rows_of) {
    ctx->saved_data["parameter"] = parameter;
    // Outlives the graph: the ranks that share a model do.
    ctx->saved_data["rows_of"] = reinterpret_cast<int64_t>(rows_of);
    return parameter.scalar_type() == type ? parameter.detach() : cast(parameter, type);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor parameter = ctx->saved_data["parameter"].toTensor();
    at::Tensor gradient = grads[0].contiguous();
    if (auto* group = reinterpret_cast<dist::Group*>(ctx->saved_data["rows_of"].toInt())) {
      const at::Tensor sum = at::empty(gradient.sizes(), gradient.options().dtype(at::kFloat));
      copy(sum, gradient);
      group->wait(group->all_reduce(sum));
      gradient = sum;
    }
    add_to_gradient(parameter, gradient);
    return {{}, {}, {}};
  }
};

}  // namespace

at::Tensor trained_input(const at::Tensor& parameter, at::ScalarType type, dist::Group* rows_of) {
  return TrainedInputFunction::apply(parameter, type, rows_of);
}

}  // namespace snug::ops
