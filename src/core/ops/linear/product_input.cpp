// SPDX-License-Identifier: Apache-2.0
#include "core/ops/linear/product_input.h"

namespace snug::ops {

at::Tensor ProductInput::value() const {
  if (!activation) return x;
  return up ? gated(x, *up, *activation) : activate(x, *activation);
}

std::pair<at::Tensor, at::Tensor> ProductInput::gradients(const at::Tensor& d_value) const {
  if (!activation) return {d_value, {}};
  if (up) {
    gated_backward_in_place(d_value, x, *up, *activation);
    return {x, *up};
  }
  activation_backward_in_place(d_value, x, *activation);
  return {d_value, {}};
}

}  // namespace snug::ops
