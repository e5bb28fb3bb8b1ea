// Casts and sums of flat arrays. Halves are rounded to nearest even; NaN stays NaN.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/kernels/scalar.h"

namespace snug::kernels::cpu {

// to = from. The arrays must not overlap, unless they are identical with elements of the same size.
void cast(const void* from, Scalar from_type, void* to, Scalar to_type, int64_t count,
          int num_threads = 0);

// c = a + b, all of one type; c may be a or b.
void add(const void* a, const void* b, void* c, Scalar type, int64_t count, int num_threads = 0);

// y += alpha * x.
void accumulate(void* y, Scalar y_type, const void* x, Scalar x_type, int64_t count,
                float alpha = 1.0f, int num_threads = 0);

// x *= factor.
void scale(void* x, Scalar type, float factor, int64_t count, int num_threads = 0);

// x = value.
void fill(void* x, Scalar type, float value, int64_t count, int num_threads = 0);

}  // namespace snug::kernels::cpu
