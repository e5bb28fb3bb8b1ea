// Sharing out; the loops are in simd/elementwise.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/elementwise.h"

#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/simd/kernels.h"

namespace snug::kernels::cpu {

void cast(const void* from, Scalar from_type, void* to, Scalar to_type, int64_t count,
          int num_threads) {
  const auto range = SNUG_FOR_ISA(cast_range);
  parallel_ranges(count, 1, num_threads, [&](int64_t begin, int64_t end) {
    range(from, from_type, to, to_type, begin, end);
  });
}

void add(const void* a, const void* b, void* c, Scalar type, int64_t count, int num_threads) {
  const auto range = SNUG_FOR_ISA(add_range);
  parallel_ranges(count, 1, num_threads,
                  [&](int64_t begin, int64_t end) { range(a, b, c, type, begin, end); });
}

void accumulate(void* y, Scalar y_type, const void* x, Scalar x_type, int64_t count, float alpha,
                int num_threads) {
  const auto range = SNUG_FOR_ISA(accumulate_range);
  parallel_ranges(count, 1, num_threads, [&](int64_t begin, int64_t end) {
    range(y, y_type, x, x_type, alpha, begin, end);
  });
}

void scale(void* x, Scalar type, float factor, int64_t count, int num_threads) {
  const auto range = SNUG_FOR_ISA(scale_range);
  parallel_ranges(count, 1, num_threads,
                  [&](int64_t begin, int64_t end) { range(x, type, factor, begin, end); });
}

void fill(void* x, Scalar type, float value, int64_t count, int num_threads) {
  const auto range = SNUG_FOR_ISA(fill_range);
  parallel_ranges(count, 1, num_threads,
                  [&](int64_t begin, int64_t end) { range(x, type, value, begin, end); });
}

}  // namespace snug::kernels::cpu
