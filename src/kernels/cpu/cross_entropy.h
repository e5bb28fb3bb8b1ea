// Cross-entropy of rows of logits, and its gradient written over them.
//   lse = log(sum(exp(logits))),  loss = lse - (1 - s) * logit[target] - s * mean(logits) + z *
//   lse^2 gradient = scale * ((1 + 2 * z * lse) * softmax - (1 - s) * onehot - s / V)
// A row is read once from memory: stretches that fit the first-level cache get their maximum and
// exp(x - maximum) together, and a second sweep turns these into the gradient. One exp per element.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cpu/scalar.h"

namespace snug::kernels::cpu {

struct CrossEntropy {
  int64_t rows = 0;           // R
  int64_t vocabulary = 0;     // V
  float* logits = nullptr;    // (R, V), scratch: contents are lost when a gradient is asked for
  int64_t logits_stride = 0;  // elements from row to row; 0: V
  const int32_t* targets = nullptr;  // (R), each in [0, V) or ignore_index
  int32_t ignore_index = -100;       // such rows add no loss, and their gradient is zero
  float scale = 1.0f;                // on the gradient only
  float label_smoothing = 0.0f;      // s
  float z_loss = 0.0f;               // z
  bool need_gradient = true;         // false: logits stay as they are
  void* gradient = nullptr;          // (R, V), optional: where the gradient goes instead of logits
  Scalar gradient_type = Scalar::F32;  // of `gradient`
  int64_t gradient_stride = 0;         // 0: V
  float* row_loss = nullptr;           // (R), optional: 0 for ignored rows
  int num_threads = 0;
};

struct CrossEntropyResult {
  double loss_sum = 0.0;  // over rows that are not ignored; not scaled
  int64_t count = 0;      // of such rows
};
CrossEntropyResult cross_entropy(const CrossEntropy& args);

}  // namespace snug::kernels::cpu
