// The rows of a micro-batch whose targets count in the loss. Others (prompts, padding, a picture's
// placeholders) skip the head's product, often the largest of a model.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace snug::ops {

struct CountedRows {
  // (N) int32 each: the rows that count and their targets, in order, then zeros; of full length so
  // that memory does not depend on their number. Undefined: use all rows.
  at::Tensor rows, targets;
  int64_t count = 0;
};

}  // namespace snug::ops
