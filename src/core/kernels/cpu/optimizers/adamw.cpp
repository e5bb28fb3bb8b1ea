// The list cut into blocks.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/optimizers/adamw.h"

#include "base/error.h"
#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/optimizers/adamw_factors.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/random_key.h"
#include "core/kernels/cpu/simd/kernels.h"

namespace snug::kernels::cpu {

void adamw_step(std::span<const AdamWTensor> tensors, const AdamWOptions& options) {
  SNUG_CHECK(options.step >= 1, "AdamW step {}; the first is 1", options.step);
  for (const AdamWTensor& tensor : tensors) {
    SNUG_CHECK(tensor.state_type != Scalar::F16, "AdamW states are float32 or bfloat16");
  }
  const AdamWFactors common = adamw_factors(options);
  const std::vector<TensorBlock> blocks = tensor_blocks(tensors);
  const auto range = SNUG_FOR_ISA(adamw_range);
  parallel_blocks(static_cast<int64_t>(blocks.size()), options.num_threads, [&](int64_t b) {
    const AdamWTensor& tensor = tensors[blocks[b].tensor];
    AdamWFactors factors = common;
    factors.random_key = random_key(options.seed, options.step, tensor.tensor_id);
    range(tensor, factors, blocks[b].begin, blocks[b].end);
  });
}

}  // namespace snug::kernels::cpu
