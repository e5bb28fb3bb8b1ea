// Which experts of a mixture a token goes to, and with what weight (Shazeer et al. 2017; Fedus et
// al. 2021). Shapes: T tokens, E experts, k of them for each token.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/ops/device/upload.h"

namespace snug::ops {

struct Routes {
  at::Tensor weights;  // (T, k), of the logits' type
  at::Tensor experts;  // (T, k) int64, no gradient
};

// softmax(logits) in float32, logits (T, E), and the k largest of each token; `normalized`: these
// divided by their sum.
Routes route(const at::Tensor& logits, int64_t k, bool normalized);

// Every token's k routes, sorted by expert and then by token.
struct SortedRoutes {
  at::Tensor tokens;            // (T k) int32: the token of each
  at::Tensor places;            // (T k) int32: its place in (T, k)
  at::Tensor positions;         // (T k) int32: the inverse of `places`
  std::vector<int64_t> begins;  // (E + 1): each expert's range
  std::shared_ptr<Upload> upload;
};

// The host sorts them, and waits for the device to know them. On meta no expert has any.
SortedRoutes sort_by_expert(const at::Tensor& experts, int64_t num_experts);

}  // namespace snug::ops
