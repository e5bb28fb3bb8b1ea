// The building blocks for AVX2, FMA and F16C: 12 of the 16 registers hold sums.
// SPDX-License-Identifier: Apache-2.0
#define SNUG_SIMD_WIDTH 8
#define SNUG_TILE_ROWS 6
#define SNUG_TILE_VECTORS 2
#include "core/kernels/cpu/linalg/isa/kernels_impl.h"

namespace snug::kernels::cpu {
const Kernels& avx2_kernels() { return kTable; }
}  // namespace snug::kernels::cpu
