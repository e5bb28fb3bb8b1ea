// Cross-entropy of rows of logits, and its gradient written over them.
//   lse = log(sum(exp(logits)))
//   loss = lse - (1 - s) * logit[target] - s * mean(logits) + z * lse^2
//   gradient = scale * row_scale * ((1 + 2 * z * lse) * softmax - (1 - s) * onehot - s / V)
// With a teacher that is weighed by target_weight, and the divergence from what it says is added
// (core/kernels/divergence.h).
// A row is read once from memory: stretches that fit the first-level cache get their maximum and
// exp(x - maximum) together, and a second sweep turns these into the gradient. One exp per element.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/kernels/scalar.h"

namespace snug::kernels {

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
  float* row_loss = nullptr;           // (R), optional: 0 for ignored rows; without divergences
  const float* row_scale = nullptr;    // (R), optional: each row's own factor of its gradient
  // A teacher's most likely tokens, K of them; 0: no teacher.
  int64_t top_k = 0;
  // (R, 2 K): their ids, different ones, a negative one for none; their log-probabilities.
  const float* teacher = nullptr;
  const float* at_teachers = nullptr;  // (R, K): this model's logits of them; see teachers_logits()
  float target_weight = 1.0f;
  float beta = 0.0f;  // of the divergence
  int num_threads = 0;
  // For a vocabulary split among processes (see below); targets are ids of the whole vocabulary.
  int64_t first = 0;             // the id of the first column
  int64_t whole_vocabulary = 0;  // 0: V

  int64_t all_columns() const { return whole_vocabulary == 0 ? vocabulary : whole_vocabulary; }
  bool has_column(int64_t target) const { return target >= first && target < first + vocabulary; }
};

struct CrossEntropyResult {
  double loss_sum = 0.0;  // over rows that are not ignored; not scaled
  int64_t count = 0;      // of such rows
};

// The same with columns split among processes, in two sweeps: the first computes this part's sums
// for each row; once the sums of all parts are known, the second computes loss and gradient.
inline constexpr int64_t kPartSums = 4;  // a row's: see CrossEntropyPartSums
struct CrossEntropyPartSums {
  double maximum = 0;       // of this part's logits
  double exponentials = 0;  // sum of exp(x - maximum)
  double logits = 0;        // their sum; 0 without label smoothing
  double target = 0;        // the target's logit; 0 in a part that does not have it
};
static_assert(sizeof(CrossEntropyPartSums) == kPartSums * sizeof(double));

namespace cpu {
// (R, K): the logits of the teacher's tokens; 0 for those that `args` has no column of.
void teachers_logits(const CrossEntropy& args, float* out);
CrossEntropyResult cross_entropy(const CrossEntropy& args);
// Scratch passed from the first sweep to the second, besides the logits.
int64_t cross_entropy_part_scratch_bytes(int64_t rows);
// sums: (R). With need_gradient the logits become scratch.
void cross_entropy_part_sums(const CrossEntropy& args, CrossEntropyPartSums* sums, void* scratch);
// sums: (P, R), of all P parts, in the same order on all processes. The loss is of whole rows, the
// gradient of this part.
CrossEntropyResult cross_entropy_of_parts(const CrossEntropy& args,
                                          const CrossEntropyPartSums* sums, int64_t num_parts,
                                          const void* scratch);
}  // namespace cpu

}  // namespace snug::kernels
