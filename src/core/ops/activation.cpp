// SPDX-License-Identifier: Apache-2.0
#include "core/ops/activation.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/error.h"

namespace snug::ops {

Activation activation_of(const std::string& name, const std::string& where) {
  static constexpr std::array<std::pair<const char*, Activation>, 8> kNames = {{
      {"relu", Activation::Relu},
      {"gelu", Activation::Gelu},
      {"gelu_new", Activation::GeluTanh},
      {"gelu_pytorch_tanh", Activation::GeluTanh},
      {"gelu_fast", Activation::GeluTanh},
      {"silu", Activation::Silu},
      {"swish", Activation::Silu},
      {"relu2", Activation::ReluSquared},
  }};
  for (const auto& [known, activation] : kNames)
    if (name == known) return activation;
  throw UserError(
      "{}: activation '{}' is not known; snug knows relu, gelu, gelu_new, gelu_pytorch_tanh, "
      "gelu_fast, silu, swish and relu2",
      where, name);
}

}  // namespace snug::ops
