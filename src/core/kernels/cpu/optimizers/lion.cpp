// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/optimizers/lion.h"

#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/optimizers/factors.h"
#include "core/kernels/cpu/optimizers/step.h"

namespace snug::kernels::cpu {

void lion_step(std::span<const LionTensor> tensors, const LionOptions& options) {
  check_states(tensors, "Lion");
  step_in_blocks(tensors, options, lion_factors(options), SNUG_FOR_ISA(lion_range));
}

}  // namespace snug::kernels::cpu
