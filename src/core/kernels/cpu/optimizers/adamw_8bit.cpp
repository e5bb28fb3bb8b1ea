// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/optimizers/adamw_8bit.h"

#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/optimizers/dynamic_map.h"
#include "core/kernels/cpu/optimizers/factors.h"
#include "core/kernels/cpu/optimizers/step.h"

namespace snug::kernels::cpu {

static_assert(kBlockElements % kQuantizedBlock == 0, "threads share out whole blocks");

void adamw_8bit_step(std::span<const AdamW8bitTensor> tensors, const AdamWOptions& options) {
  const DynamicMap& first_map = signed_dynamic_map();
  const DynamicMap& second_map = unsigned_dynamic_map();
  const auto range = SNUG_FOR_ISA(adamw_8bit_range);
  step_in_blocks(tensors, options, adamw_factors(options),
                 [&](const AdamW8bitTensor& tensor, const AdamWFactors& factors, int64_t begin,
                     int64_t end) { range(tensor, factors, first_map, second_map, begin, end); });
}

}  // namespace snug::kernels::cpu
