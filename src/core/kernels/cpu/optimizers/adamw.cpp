// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/optimizers/adamw.h"

#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/optimizers/factors.h"
#include "core/kernels/cpu/optimizers/step.h"

namespace snug::kernels::cpu {

void adamw_step(std::span<const AdamWTensor> tensors, const AdamWOptions& options) {
  check_states(tensors, "AdamW");
  step_in_blocks(tensors, options, adamw_factors(options), SNUG_FOR_ISA(adamw_range));
}

}  // namespace snug::kernels::cpu
