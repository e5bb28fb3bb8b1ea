// LitGPT's five names of precision, as what they mean for parameters and for products.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/ScalarType.h>

#include <string>
#include <string_view>

namespace snug::nn {

// `-true`: parameters, gradients and products in one type. `-mixed`: float32 parameters and
// gradients, activations and products in the short type. float16 mixed scales the loss, since its
// gradients underflow otherwise.
struct Precision {
  std::string name;
  at::ScalarType parameters = at::kFloat;
  at::ScalarType compute = at::kFloat;
  bool loss_scaling = false;
};

// "32-true", "bf16-true", "16-true", "bf16-mixed", "16-mixed". Throws UserError with the choices.
Precision parse_precision(std::string_view name);

}  // namespace snug::nn
