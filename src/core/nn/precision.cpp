// SPDX-License-Identifier: Apache-2.0
#include "core/nn/precision.h"

namespace snug::nn {

Precision parse_precision(const recipe::Word<recipe::Precision>& name) {
  switch (name.value()) {
    case recipe::Precision::Float32:
      break;
    case recipe::Precision::BFloat16:
      return {name, at::kBFloat16, at::kBFloat16, false};
    case recipe::Precision::Float16:
      return {name, at::kHalf, at::kHalf, false};
    case recipe::Precision::MixedBFloat16:
      return {name, at::kFloat, at::kBFloat16, false};
    case recipe::Precision::MixedFloat16:
      return {name, at::kFloat, at::kHalf, true};
  }
  return {name, at::kFloat, at::kFloat, false};
}

}  // namespace snug::nn
