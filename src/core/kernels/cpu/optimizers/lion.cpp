// The step's factors, and the list cut into blocks.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/optimizers/lion.h"

#include "base/error.h"
#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/random_key.h"
#include "core/kernels/cpu/simd/kernels.h"

namespace snug::kernels::cpu {

void lion_step(std::span<const LionTensor> tensors, const LionOptions& options) {
  for (const LionTensor& tensor : tensors) {
    SNUG_CHECK(tensor.state_type != Scalar::F16, "Lion's state is float32 or bfloat16");
  }
  const LionFactors common = {.lr = static_cast<float>(options.lr),
                              .decay = static_cast<float>(1 - options.lr * options.weight_decay),
                              .beta1 = static_cast<float>(options.beta1),
                              .beta2 = static_cast<float>(options.beta2),
                              .grad_scale = options.grad_scale,
                              .stochastic = options.stochastic_rounding};
  const std::vector<TensorBlock> blocks = tensor_blocks(tensors);
  const auto range = SNUG_FOR_ISA(lion_range);
  parallel_blocks(static_cast<int64_t>(blocks.size()), options.num_threads, [&](int64_t b) {
    const LionTensor& tensor = tensors[blocks[b].tensor];
    LionFactors factors = common;
    factors.random_key = random_key(options.seed, options.step, tensor.tensor_id);
    range(tensor, factors, blocks[b].begin, blocks[b].end);
  });
}

}  // namespace snug::kernels::cpu
