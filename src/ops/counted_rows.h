// The rows of a micro-batch whose targets count in the loss: prompts, padding and a picture's
// placeholders do not, and the head's products, often the largest of a model, are spared for them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace snug::ops {

struct CountedRows {
  // (N) int32 each, as many as there are rows so that memory does not depend on how many count:
  // those that do, in their order, then zeros. Undefined: nobody looked, and all are taken.
  at::Tensor rows, targets;
  int64_t count = 0;
};

}  // namespace snug::ops
