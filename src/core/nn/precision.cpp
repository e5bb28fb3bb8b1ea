// SPDX-License-Identifier: Apache-2.0
#include "core/nn/precision.h"

#include "base/error.h"

namespace snug::nn {

Precision parse_precision(std::string_view name) {
  const Precision known[] = {
      {"32-true", at::kFloat, at::kFloat, false},
      {"bf16-true", at::kBFloat16, at::kBFloat16, false},
      {"16-true", at::kHalf, at::kHalf, false},
      {"bf16-mixed", at::kFloat, at::kBFloat16, false},
      {"16-mixed", at::kFloat, at::kHalf, true},
  };
  for (const Precision& precision : known)
    if (precision.name == name) return precision;
  throw UserError(
      "precision = \"{}\" is unknown; choose 32-true, bf16-true, 16-true, bf16-mixed or 16-mixed",
      name);
}

}  // namespace snug::nn
