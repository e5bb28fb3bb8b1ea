// LitGPT's five precision names: the types of parameters and of products.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

#include "recipe/tables/choices.h"

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

// Throws UserError for a name that is none of the five.
Precision parse_precision(const recipe::Word<recipe::Precision>& name);

}  // namespace snug::nn
