// The list cut into stretches of whole blocks.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/optimizers/adamw_8bit.h"

#include "base/error.h"
#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/optimizers/adamw_factors.h"
#include "core/kernels/cpu/optimizers/dynamic_map.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/random_key.h"
#include "core/kernels/cpu/simd/kernels.h"

namespace snug::kernels::cpu {

static_assert(kBlockElements % kQuantizedBlock == 0, "threads share out whole blocks");

void adamw_8bit_step(std::span<const AdamW8bitTensor> tensors, const AdamWOptions& options) {
  SNUG_CHECK(options.step >= 1, "AdamW step {}; the first is 1", options.step);
  const AdamWFactors common = adamw_factors(options);
  const DynamicMap& first_map = signed_dynamic_map();
  const DynamicMap& second_map = unsigned_dynamic_map();
  const std::vector<TensorBlock> blocks = tensor_blocks(tensors);
  const auto range = SNUG_FOR_ISA(adamw_8bit_range);
  parallel_blocks(static_cast<int64_t>(blocks.size()), options.num_threads, [&](int64_t b) {
    const AdamW8bitTensor& tensor = tensors[blocks[b].tensor];
    AdamWFactors factors = common;
    factors.random_key = random_key(options.seed, options.step, tensor.tensor_id);
    range(tensor, factors, first_map, second_map, blocks[b].begin, blocks[b].end);
  });
}

}  // namespace snug::kernels::cpu
