// SPDX-License-Identifier: Apache-2.0
#include "ops/trained_input.h"

#include <torch/csrc/autograd/custom_function.h>

#include "ops/device.h"
#include "ops/elementwise.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct TrainedInputFunction : torch::autograd::Function<TrainedInputFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& parameter,
                            at::ScalarType type) {
    ctx->saved_data["parameter"] = parameter;
    return parameter.scalar_type() == type ? parameter.detach() : cast(parameter, type);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    add_to_gradient(ctx->saved_data["parameter"].toTensor(), grads[0].contiguous());
    return {{}, {}};
  }
};

}  // namespace

at::Tensor trained_input(const at::Tensor& parameter, at::ScalarType type) {
  return TrainedInputFunction::apply(parameter, type);
}

}  // namespace snug::ops
