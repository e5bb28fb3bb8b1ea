// The building blocks for AVX-512: 24 of the 32 registers hold sums.
// SPDX-License-Identifier: Apache-2.0
#define SNUG_SIMD_WIDTH 16
#define SNUG_TILE_ROWS 12
#define SNUG_TILE_VECTORS 2
#include "core/kernels/cpu/linalg/isa/kernels_impl.h"

namespace snug::kernels::cpu {
const Kernels& avx512_kernels() { return kTable; }
}  // namespace snug::kernels::cpu
