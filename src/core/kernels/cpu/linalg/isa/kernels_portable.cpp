// The building blocks in plain C++ for any processor: the reference that the others are tested
// against.
// SPDX-License-Identifier: Apache-2.0
#define SNUG_SIMD_WIDTH 4
#define SNUG_TILE_ROWS 4
#define SNUG_TILE_VECTORS 2
#include "core/kernels/cpu/linalg/isa/kernels_impl.h"

namespace snug::kernels::cpu {
const Kernels& portable_kernels() { return kTable; }
}  // namespace snug::kernels::cpu
