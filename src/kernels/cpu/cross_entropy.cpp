// Checks, sharing out and the ordered sum of the losses; a row is done in simd/cross_entropy.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cross_entropy.h"

#include <vector>

#include "base/error.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd/kernels.h"

namespace snug::kernels::cpu {
namespace {

void check_targets(const CrossEntropy& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const int64_t target = args.targets[row];
    SNUG_CHECK((target >= 0 && target < args.vocabulary) || target == args.ignore_index,
               "target {} of row {} is outside the vocabulary of {}", target, row, args.vocabulary);
  }
}

}  // namespace

CrossEntropyResult cross_entropy(const CrossEntropy& args) {
  check_targets(args);
  CrossEntropy full = args;
  if (full.logits_stride == 0) full.logits_stride = full.vocabulary;
  if (full.gradient_stride == 0) full.gradient_stride = full.vocabulary;
  std::vector<double> losses(static_cast<size_t>(args.rows));
  const auto one_row = SNUG_FOR_ISA(cross_entropy_row);
  parallel_ranges(full.rows, full.vocabulary, full.num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) losses[row] = one_row(full, row);
  });

  CrossEntropyResult result;
  for (int64_t row = 0; row < args.rows; ++row) {
    result.loss_sum += losses[row];
    result.count += args.targets[row] != args.ignore_index;
    if (args.row_loss != nullptr) args.row_loss[row] = static_cast<float>(losses[row]);
  }
  return result;
}

}  // namespace snug::kernels::cpu
