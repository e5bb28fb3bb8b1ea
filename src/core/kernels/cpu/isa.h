// Selects the vectorised kernels at run time. Each file in simd/ is compiled once per instruction
// set, into its own namespace.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/cpu/linalg/cpu_features.h"

namespace snug::kernels::cpu {

// best_isa(), unless a ScopedIsa lowers it.
Isa active_isa();

// For tests and benchmarks: limits the instruction set to `isa` (at most best_isa()) while it
// lives. Not thread-safe.
class ScopedIsa {
 public:
  explicit ScopedIsa(Isa isa);
  ~ScopedIsa();
  ScopedIsa(const ScopedIsa&) = delete;
  ScopedIsa& operator=(const ScopedIsa&) = delete;

 private:
  Isa previous_;
};

template <class Function>
Function* pick_for_isa(Function* portable, Function* avx2, Function* avx512) {
  const Isa isa = active_isa();
  return isa >= Isa::Avx512 ? avx512 : isa == Isa::Avx2 ? avx2 : portable;
}

}  // namespace snug::kernels::cpu

#define SNUG_FOR_ISA(kernel) \
  ::snug::kernels::cpu::pick_for_isa(&portable::kernel, &avx2::kernel, &avx512::kernel)
