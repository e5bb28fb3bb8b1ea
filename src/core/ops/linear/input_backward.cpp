// SPDX-License-Identifier: Apache-2.0
#include "core/ops/linear/input_backward.h"

#include <ATen/ops/empty.h>

namespace snug::ops {

InputBackward::InputBackward(ProductInput input, bool needs_value, bool needs_gradient)
    : input_(std::move(input)),
      needs_value_(needs_value),
      needs_gradient_(needs_gradient || input_.up) {
  if (needs_value_ && !(input_.activation && needs_gradient_)) value_ = input_.value();
}

void InputBackward::add(const Projection& projection, const at::Tensor& d_out,
                        const at::Tensor& inner) {
  const Projector projector(projection, d_out.scalar_type());
  const at::Tensor d_inner = projector.inner_gradient(d_out);
  const bool value_comes_last = input_.activation && needs_gradient_;
  if (!value_comes_last) projector.add_own_gradients(d_out, value_, inner, d_inner);
  if (needs_gradient_) add_input_gradient(projector, d_out, d_inner, projection.in_features());
  if (!value_comes_last) return;
  ProductInput::Gradients gradients =
      input_.gradients(d_value_, needs_value_ ? Value::Again : Value::Dropped);
  d_x_ = std::move(gradients.x);
  d_up_ = std::move(gradients.up);
  projector.add_own_gradients(d_out, needs_value_ ? gradients.value : at::Tensor(), inner, d_inner);
}

void InputBackward::add_input_gradient(const Projector& projector, const at::Tensor& d_out,
                                       const at::Tensor& d_inner, int64_t in_features) {
  const bool is_first = !d_value_.defined();
  if (is_first) d_value_ = at::empty({d_out.size(0), in_features}, d_out.options());
  projector.input_gradient(d_out, d_inner, d_value_, is_first ? Into::Overwrite : Into::Accumulate);
}

std::pair<at::Tensor, at::Tensor> InputBackward::gradients() const {
  if (input_.activation) return {d_x_, d_up_};
  return {d_value_, {}};
}

}  // namespace snug::ops
