// The instruction set in use.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/isa.h"

namespace snug::kernels::cpu {
namespace {

Isa& current_isa() {
  static Isa isa = best_isa();
  return isa;
}

}  // namespace

Isa active_isa() { return current_isa(); }

ScopedIsa::ScopedIsa(Isa isa) : previous_(current_isa()) {
  current_isa() = isa < best_isa() ? isa : best_isa();
}

ScopedIsa::~ScopedIsa() { current_isa() = previous_; }

}  // namespace snug::kernels::cpu
