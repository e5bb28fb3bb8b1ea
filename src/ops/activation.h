// The names of activations.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "ops/elementwise.h"

namespace snug::ops {

// As a config.json calls them: relu, gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, silu, swish.
// `where` names the file and key in the UserError of another one.
Activation activation_of(const std::string& name, const std::string& where);

}  // namespace snug::ops
