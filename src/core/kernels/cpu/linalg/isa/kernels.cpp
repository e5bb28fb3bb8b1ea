// Which table of building blocks runs.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/linalg/isa/kernels.h"

#include "core/kernels/cpu/linalg/cpu_features.h"

namespace snug::kernels::cpu {
namespace {
const Kernels*& active() {
  static const Kernels* kernels = &kernels_for(best_isa());
  return kernels;
}

Kernels with_bf16(Kernels kernels, const Tile& tile) {
  kernels.bf16 = &tile;
  return kernels;
}
}  // namespace

const Kernels& kernels_for(Isa isa) {
#ifdef __x86_64__
  static const Kernels avx512_bf16 = with_bf16(avx512_kernels(), avx512_bf16_tile());
  static const Kernels amx = with_bf16(avx512_kernels(), amx_tile());
  if (isa == Isa::Amx) return amx;
  if (isa == Isa::Avx512Bf16) return avx512_bf16;
  if (isa == Isa::Avx512) return avx512_kernels();
  if (isa == Isa::Avx2) return avx2_kernels();
#else
  (void)isa;
#endif
  return portable_kernels();
}

const Kernels& active_kernels() { return *active(); }

ScopedKernels::ScopedKernels(const Kernels& kernels) : previous_(active()) { active() = &kernels; }
ScopedKernels::~ScopedKernels() { active() = previous_; }

}  // namespace snug::kernels::cpu
