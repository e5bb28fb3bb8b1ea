// Activation functions by name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/ops/elementwise.h"

namespace snug::ops {

// The activation for a name in a config.json: relu, gelu, gelu_new, gelu_pytorch_tanh, gelu_fast,
// silu, swish. Throws UserError for any other, with `where` as file and key.
Activation activation_of(const std::string& name, const std::string& where);

}  // namespace snug::ops
