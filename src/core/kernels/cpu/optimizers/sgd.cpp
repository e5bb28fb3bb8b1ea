// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/optimizers/sgd.h"

#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/optimizers/factors.h"
#include "core/kernels/cpu/optimizers/step.h"

namespace snug::kernels::cpu {

void sgd_step(std::span<const SgdTensor> tensors, const SgdOptions& options) {
  check_states(tensors, "SGD");
  step_in_blocks(tensors, options, sgd_factors(tensors, options), SNUG_FOR_ISA(sgd_range));
}

}  // namespace snug::kernels::cpu
