// The step's factors, in double as torch computes them, and the list cut into blocks.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/adamw.h"

#include <cmath>

#include "base/error.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/random_key.h"
#include "kernels/cpu/simd/kernels.h"

namespace snug::kernels::cpu {
namespace {

AdamWFactors factors_of(const AdamWOptions& options) {
  const double correction1 = 1 - std::pow(options.beta1, static_cast<double>(options.step));
  const double correction2 = 1 - std::pow(options.beta2, static_cast<double>(options.step));
  return {.decay = static_cast<float>(1 - options.lr * options.weight_decay),
          .one_minus_beta1 = static_cast<float>(1 - options.beta1),
          .beta2 = static_cast<float>(options.beta2),
          .one_minus_beta2 = static_cast<float>(1 - options.beta2),
          .step_size = static_cast<float>(options.lr / correction1),
          .rsqrt_correction = static_cast<float>(1 / std::sqrt(correction2)),
          .eps = static_cast<float>(options.eps),
          .grad_scale = options.grad_scale,
          .stochastic = options.stochastic_rounding};
}

}  // namespace

void adamw_step(std::span<const AdamWTensor> tensors, const AdamWOptions& options) {
  SNUG_CHECK(options.step >= 1, "AdamW step {}; the first is 1", options.step);
  for (const AdamWTensor& tensor : tensors) {
    SNUG_CHECK(tensor.state_type != Scalar::F16, "AdamW states are float32 or bfloat16");
  }
  const AdamWFactors common = factors_of(options);
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
