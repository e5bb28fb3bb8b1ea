// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <optional>
#include <utility>
#include <vector>

#include "dist/group.h"
#include "ops/device.h"
#include "ops/elementwise.h"
#include "ops/kept.h"
#include "ops/matmul.h"

namespace snug::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Carries a projection through a graph's node.
struct Carried final : torch::CustomClassHolder {
  explicit Carried(Projection p) : projection(std::move(p)) {}
  Projection projection;
};

void carry(AutogradContext* ctx, const Projection& projection) {
  ctx->saved_data["projection"] =
      c10::IValue::make_capsule(c10::make_intrusive<Carried>(projection));
}

const Projection& carried(AutogradContext* ctx) {
  return static_cast<const Carried*>(ctx->saved_data["projection"].toCapsule().get())->projection;
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Projection& projection,
                            const std::optional<at::Tensor>& /*trained*/) {
    at::Tensor inner;
    at::Tensor out = Projector(projection, x.scalar_type()).forward(x, x.scalar_type(), &inner);
    carry(ctx, projection);
    keep(ctx, {projection.needs_input() ? x : at::Tensor(), inner});
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor d_out = grads[0].contiguous();
    const variable_list saved = ctx->get_saved_variables();
    const Projection& projection = carried(ctx);
    const Projector projector(projection, d_out.scalar_type());
    const at::Tensor d_inner = projector.add_gradients(d_out, saved[0], saved[1]);
    if (!ctx->needs_input_grad(0)) return {at::Tensor(), {}, {}};
    at::Tensor d_x = at::empty({d_out.size(0), projection.in_features()}, d_out.options());
    projector.input_gradient(d_out, d_inner, d_x);
    return {d_x, {}, {}};
  }
};

struct SwigluLinearFunction : torch::autograd::Function<SwigluLinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate, const at::Tensor& up,
                            const Projection& projection,
                            const std::optional<at::Tensor>& /*trained*/) {
    at::Tensor inner;
    at::Tensor out = Projector(projection, gate.scalar_type())
                         .forward(swiglu(gate, up), gate.scalar_type(), &inner);
    carry(ctx, projection);
    keep(ctx, {gate, up, inner});
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor d_out = grads[0].contiguous();
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& gate = saved[0];
    const at::Tensor& up = saved[1];
    const Projection& projection = carried(ctx);
    const Projector projector(projection, d_out.scalar_type());
    const at::Tensor d_inner = projector.add_gradients(
        d_out, projection.needs_input() ? swiglu(gate, up) : at::Tensor(), saved[2]);
    const at::Tensor d_x = at::empty({d_out.size(0), projection.in_features()}, d_out.options());
    projector.input_gradient(d_out, d_inner, d_x);
    // gate and up are outputs of products, which nothing else needs: their memory takes the
    // gradients.
    swiglu_backward_in_place(d_x, gate, up);
    return {gate, up, {}, {}};
  }
};

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

void add_bias_gradient(const at::Tensor& bias, const at::Tensor& d_out) {
  add_to_gradient(bias, sum_of_rows(d_out));
}

at::Tensor linear(const at::Tensor& x, const Projection& projection) {
  return LinearFunction::apply(x, projection, projection.any_trained());
}

at::Tensor swiglu_linear(const at::Tensor& gate, const at::Tensor& up,
                         const Projection& projection) {
  return SwigluLinearFunction::apply(gate, up, projection, projection.any_trained());
}

}  // namespace snug::ops
