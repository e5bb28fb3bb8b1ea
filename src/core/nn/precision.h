// LitGPT's five precision names: the types of parameters and of products.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/ScalarType.h>

#include <string>
#include <string_view>

namespace snug::nn {

// `-true`: parameters, gradients and products in one type. `-mixed`: float32 parameters and
// gradients, 16-bit activations and products. 16-mixed scales the loss, since float16 gradients
// would underflow.
struct Precision {
  std::string name;
  at::ScalarType parameters = at::kFloat;
  at::ScalarType compute = at::kFloat;
  bool loss_scaling = false;
};

// `name`: 32-true, bf16-true, 16-true, bf16-mixed or 16-mixed. Throws UserError for any other.
Precision parse_precision(std::string_view name);

}  // namespace snug::nn
