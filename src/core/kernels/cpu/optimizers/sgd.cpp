// The step's factors, and the list cut into blocks.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/optimizers/sgd.h"

#include "base/error.h"
#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/random_key.h"
#include "core/kernels/cpu/simd/kernels.h"

namespace snug::kernels::cpu {
namespace {

void check(const SgdTensor& tensor, const SgdOptions& options) {
  SNUG_CHECK(tensor.state_type != Scalar::F16, "SGD states are float32 or bfloat16");
  SNUG_CHECK(options.momentum == 0 || tensor.momentum_buffer != nullptr,
             "SGD with momentum {} needs a momentum buffer for each tensor", options.momentum);
}

}  // namespace

void sgd_step(std::span<const SgdTensor> tensors, const SgdOptions& options) {
  SNUG_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
             "Nesterov needs momentum above 0 (is {}) and no dampening (is {})", options.momentum,
             options.dampening);
  for (const SgdTensor& tensor : tensors) check(tensor, options);
  const SgdFactors common = {
      .lr = static_cast<float>(options.lr),
      .momentum = static_cast<float>(options.momentum),
      .new_share = options.first_step ? 1.0f : static_cast<float>(1 - options.dampening),
      .weight_decay = static_cast<float>(options.weight_decay),
      .grad_scale = options.grad_scale,
      .nesterov = options.nesterov,
      .first_step = options.first_step,
      .stochastic = options.stochastic_rounding};
  const std::vector<TensorBlock> blocks = tensor_blocks(tensors);
  const auto range = SNUG_FOR_ISA(sgd_range);
  parallel_blocks(static_cast<int64_t>(blocks.size()), options.num_threads, [&](int64_t b) {
    const SgdTensor& tensor = tensors[blocks[b].tensor];
    SgdFactors factors = common;
    factors.random_key = random_key(options.seed, options.step, tensor.tensor_id);
    range(tensor, factors, blocks[b].begin, blocks[b].end);
  });
}

}  // namespace snug::kernels::cpu
