// SPDX-License-Identifier: Apache-2.0
#include "core/ops/linear/linear.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>
#include <vector>

#include "core/dist/group.h"
#include "core/ops/device/carried.h"
#include "core/ops/device/device.h"
#include "core/ops/device/kept.h"
#include "core/ops/elementwise.h"
#include "core/ops/linear/input_backward.h"
#include "core/ops/linear/matmul.h"
#include "core/ops/vector_gradient.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Layers {
  std::vector<Projection> projections;
  std::optional<Activation> activation;
  Up kind_of_up = Up::Own;
};

struct LinearsFunction : torch::autograd::Function<LinearsFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x,
                               const std::optional<at::Tensor>& up,
                               const std::optional<Activation>& activation, Up kind_of_up,
                               const std::vector<Projection>& projections,
                               const std::optional<at::Tensor>& /*trained*/) {
    const ProductInput input{x, up, activation};
    variable_list outputs;
    variable_list kept{input.keeps(need_input(projections)) ? x : at::Tensor(),
                       up.value_or(at::Tensor())};
    const at::Tensor value = input.value();
    for (const Projection& p : projections) {
      at::Tensor inner;
      outputs.push_back(Projector(p, x.scalar_type()).forward(value, x.scalar_type(), &inner));
      kept.push_back(inner);
    }
    carry(ctx, Layers{projections, activation, kind_of_up});
    keep(ctx, std::move(kept));
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto& [projections, activation, kind_of_up] = carried<Layers>(ctx);
    ProductInput input{saved[0], std::nullopt, activation, kind_of_up};
    if (saved[1].defined()) input.up = saved[1];
    InputBackward backward(std::move(input), need_input(projections), ctx->needs_input_grad(0));
    for (size_t i = projections.size(); i-- > 0;)
      backward.add(projections[i], std::exchange(grads[i], {}).contiguous(), saved[i + 2]);
    const auto [d_x, d_up] = backward.gradients();
    return {d_x, d_up, {}, {}, {}, {}};
  }
};

variable_list apply(const ProductInput& input, const std::vector<Projection>& projections) {
  return LinearsFunction::apply(input.x, input.up, input.activation, input.kind_of_up, projections,
                                any_trained(projections));
}

}  // namespace

at::Tensor weight_in(at::ScalarType type, const at::Tensor& weight) {
  return weight.scalar_type() == type ? weight : cast(weight, type);
}

void add_weight_gradient(const at::Tensor& weight, const at::Tensor& d_out, const at::Tensor& x,
                         float alpha, dist::Group* terms_of) {
  if (terms_of != nullptr) {
    const at::Tensor sum =
        at::empty(weight.sizes(), weight.options().dtype(at::kFloat).requires_grad(false));
    matmul_into(sum, d_out.t(), x, Into::Overwrite, alpha);
    terms_of->wait(terms_of->all_reduce(sum));
    add_to_gradient(weight, sum);
    return;
  }
  const GradientBuffer gradient = gradient_buffer(weight);
  matmul_into(gradient.tensor, d_out.t(), x, gradient.fresh ? Into::Overwrite : Into::Accumulate,
              alpha);
}

void add_bias_gradient(const at::Tensor& bias, const at::Tensor& d_out, dist::Group* terms_of) {
  VectorGradient gradient(bias, terms_of);
  gradient.sum_rows(d_out);
  gradient.start();
  gradient.finish();
}

at::Tensor linear(const at::Tensor& x, const Projection& projection) {
  return linear(ProductInput{.x = x}, projection);
}

at::Tensor linear(const ProductInput& input, const Projection& projection) {
  return apply(input, {projection})[0];
}

std::vector<at::Tensor> linears(const at::Tensor& x, const std::vector<Projection>& projections) {
  return apply({.x = x}, projections);
}

GradientSums::GradientSums(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) {
    if (parameter.scalar_type() == at::kFloat) continue;
    const at::Tensor room =
        at::empty(parameter.sizes(), parameter.options().dtype(at::kFloat).requires_grad(false));
    sums_.push_back({.parameter = parameter,
                     .gradient = std::exchange(parameter.mutable_grad(), {}),
                     .slot = take_gradient_slot(parameter)});
    set_gradient_slot(parameter, room);
  }
}

GradientSums::~GradientSums() {
  for (Sum& sum : sums_) take(sum);
}

at::Tensor GradientSums::take(Sum& sum) {
  set_gradient_slot(sum.parameter, std::move(sum.slot));
  return std::exchange(sum.parameter.mutable_grad(), std::move(sum.gradient));
}

void GradientSums::finish() {
  while (!sums_.empty()) {
    Sum sum = std::move(sums_.back());
    sums_.pop_back();
    const at::Tensor total = take(sum);
    if (!total.defined()) continue;
    const GradientBuffer buffer = gradient_buffer(sum.parameter);
    if (buffer.fresh)
      ops::copy(buffer.tensor, total);
    else
      accumulate(buffer.tensor, total);
  }
}

}  // namespace snug::ops
