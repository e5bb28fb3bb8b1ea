// Checks, sharing out and the ordered sum of the losses; a row is done in simd/cross_entropy.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cross_entropy.h"

#include <cmath>
#include <vector>

#include "base/error.h"
#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/simd/kernels.h"

namespace snug::kernels::cpu {
namespace {

void check_targets(const CrossEntropy& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const int64_t target = args.targets[row];
    SNUG_CHECK((target >= 0 && target < args.all_columns()) || target == args.ignore_index,
               "target {} of row {} is outside the vocabulary of {}", target, row,
               args.all_columns());
  }
}

CrossEntropy with_strides(const CrossEntropy& args) {
  check_targets(args);
  CrossEntropy full = args;
  if (full.logits_stride == 0) full.logits_stride = full.vocabulary;
  if (full.gradient_stride == 0) full.gradient_stride = full.vocabulary;
  return full;
}

CrossEntropyResult add_up(const CrossEntropy& args, const std::vector<double>& losses) {
  CrossEntropyResult result;
  for (int64_t row = 0; row < args.rows; ++row) {
    result.loss_sum += losses[row];
    result.count += args.targets[row] != args.ignore_index;
  }
  return result;
}

// One row's sums of all parts as the whole row's. Parts without finite logits have nothing to add.
CrossEntropyPartSums combine(const CrossEntropyPartSums* sums, int64_t num_parts, int64_t rows) {
  CrossEntropyPartSums whole = sums[0];
  for (int64_t part = 1; part < num_parts; ++part) {
    const CrossEntropyPartSums& next = sums[part * rows];
    if (!(next.maximum <= whole.maximum)) whole.maximum = next.maximum;
  }
  const double shift = std::isinf(whole.maximum) ? 0 : whole.maximum;
  whole.exponentials = whole.logits = whole.target = 0;
  for (int64_t part = 0; part < num_parts; ++part) {
    const CrossEntropyPartSums& own = sums[part * rows];
    whole.exponentials +=
        own.exponentials * std::exp((std::isinf(own.maximum) ? 0 : own.maximum) - shift);
    whole.logits += own.logits;
    whole.target += own.target;
  }
  return whole;
}

}  // namespace

void teachers_logits(const CrossEntropy& args, float* out) {
  const CrossEntropy full = with_strides(args);
  parallel_ranges(full.rows, full.top_k, full.num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t i = 0; i < full.top_k; ++i) {
        const auto id = static_cast<int64_t>(full.teacher[row * 2 * full.top_k + i]);
        out[row * full.top_k + i] =
            full.has_column(id) ? full.logits[row * full.logits_stride + id - full.first] : 0;
      }
  });
}

CrossEntropyResult cross_entropy(const CrossEntropy& args) {
  const CrossEntropy full = with_strides(args);
  std::vector<double> losses(static_cast<size_t>(args.rows));
  const auto one_row = SNUG_FOR_ISA(cross_entropy_row);
  parallel_ranges(full.rows, full.vocabulary, full.num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) losses[row] = one_row(full, row);
  });
  return add_up(full, losses);
}

int64_t cross_entropy_part_scratch_bytes(int64_t rows) {
  return rows * kMaxStretches * static_cast<int64_t>(sizeof(float));
}

void cross_entropy_part_sums(const CrossEntropy& args, CrossEntropyPartSums* sums, void* scratch) {
  const CrossEntropy full = with_strides(args);
  const auto one_row = SNUG_FOR_ISA(cross_entropy_part_row);
  parallel_ranges(full.rows, full.vocabulary, full.num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      sums[row] = one_row(full, row, static_cast<float*>(scratch) + row * kMaxStretches);
  });
}

CrossEntropyResult cross_entropy_of_parts(const CrossEntropy& args,
                                          const CrossEntropyPartSums* sums, int64_t num_parts,
                                          const void* scratch) {
  const CrossEntropy full = with_strides(args);
  std::vector<double> losses(static_cast<size_t>(args.rows));
  const auto one_row = SNUG_FOR_ISA(cross_entropy_whole_row);
  parallel_ranges(full.rows, full.vocabulary, full.num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      losses[row] = one_row(full, row, combine(sums + row, num_parts, full.rows),
                            static_cast<const float*>(scratch) + row * kMaxStretches);
  });
  return add_up(full, losses);
}

}  // namespace snug::kernels::cpu
