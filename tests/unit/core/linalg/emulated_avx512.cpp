// The AVX-512 table (16 lanes, 12 x 32 tile) compiled for the plain processor, so that its
// arithmetic and its borders are tested where no AVX-512 exists.
// SPDX-License-Identifier: Apache-2.0
#define SNUG_SIMD_WIDTH 16
#define SNUG_TILE_ROWS 12
#define SNUG_TILE_VECTORS 2
#include "core/kernels/cpu/linalg/isa/kernels_impl.h"

namespace snug::kernels::cpu {
const Kernels& emulated_avx512_kernels() { return kTable; }
}  // namespace snug::kernels::cpu
