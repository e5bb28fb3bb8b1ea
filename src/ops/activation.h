// Activations between the layers of an MLP, alone and as part of the product that reads them: the
// product's backward computes them again from what they were made of, so that their outputs are
// never kept.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "ops/elementwise.h"
#include "ops/projection.h"

namespace snug::ops {

// As a config.json calls them: relu, gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, silu, swish.
// `where` names the file and key in the UserError of another one.
Activation activation_of(const std::string& name, const std::string& where);

// down(activation(x)): x (N, F), weight (D, F) -> (N, D). Saves x only.
at::Tensor activation_linear(const at::Tensor& x, Activation activation,
                             const Projection& projection);

// down(activation(gate) * up); gate, up (N, F), weight (D, F) -> (N, D). Saves gate and up only,
// whose memory takes their gradients: they must be needed by nothing else.
at::Tensor gated_linear(const at::Tensor& gate, const at::Tensor& up, Activation activation,
                        const Projection& projection);

}  // namespace snug::ops
