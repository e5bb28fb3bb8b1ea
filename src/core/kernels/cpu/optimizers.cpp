// Optimizers whose elements know nothing of each other (8-bit moments: blocks of 256), and the
// gradients' norm: threads share out blocks of the list of tensors, which simd/*.cpp work on.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/optimizers.h"

#include <cmath>
#include <vector>

#include "base/error.h"
#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/dynamic_map.h"
#include "core/kernels/random_key.h"

namespace snug::kernels {
namespace {

template <class Tensor>
void check_states(std::span<const Tensor> tensors, const char* optimizer) {
  for (const Tensor& tensor : tensors)
    SNUG_CHECK(tensor.state_type != Scalar::F16, "{}'s states are float32 or bfloat16", optimizer);
}

}  // namespace

AdamWFactors adamw_factors(const AdamWOptions& options, std::span<const AdamWTensor> tensors) {
  check_states(tensors, "AdamW");
  SNUG_CHECK(options.step >= 1, "AdamW step {}; the first is 1", options.step);
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

LionFactors lion_factors(const LionOptions& options, std::span<const LionTensor> tensors) {
  check_states(tensors, "Lion");
  return {.lr = static_cast<float>(options.lr),
          .decay = static_cast<float>(1 - options.lr * options.weight_decay),
          .beta1 = static_cast<float>(options.beta1),
          .beta2 = static_cast<float>(options.beta2),
          .grad_scale = options.grad_scale,
          .stochastic = options.stochastic_rounding};
}

SgdFactors sgd_factors(const SgdOptions& options, std::span<const SgdTensor> tensors) {
  check_states(tensors, "SGD");
  SNUG_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
             "Nesterov needs momentum above 0 (is {}) and no dampening (is {})", options.momentum,
             options.dampening);
  for (const SgdTensor& tensor : tensors)
    SNUG_CHECK(options.momentum == 0 || tensor.momentum_buffer != nullptr,
               "SGD with momentum {} needs a momentum buffer for each tensor", options.momentum);
  return {.lr = static_cast<float>(options.lr),
          .momentum = static_cast<float>(options.momentum),
          .new_share = options.first_step ? 1.0f : static_cast<float>(1 - options.dampening),
          .weight_decay = static_cast<float>(options.weight_decay),
          .grad_scale = options.grad_scale,
          .nesterov = options.nesterov,
          .first_step = options.first_step,
          .stochastic = options.stochastic_rounding};
}

namespace cpu {
namespace {

static_assert(kBlockElements % kQuantizedBlock == 0, "threads share out whole blocks");

// range(tensor, factors, begin, end), with the tensor's key among the factors.
template <class Tensor, class Options, class Factors, class Range>
void step_in_blocks(std::span<const Tensor> tensors, const Options& options, const Factors& common,
                    const Range& range) {
  const std::vector<TensorBlock> blocks = tensor_blocks(tensors);
  parallel_blocks(static_cast<int64_t>(blocks.size()), options.num_threads, [&](int64_t b) {
    const Tensor& tensor = tensors[blocks[b].tensor];
    Factors factors = common;
    factors.random_key = random_key(options.seed, options.step, tensor.tensor_id);
    range(tensor, factors, blocks[b].begin, blocks[b].end);
  });
}

}  // namespace

void adamw_step(std::span<const AdamWTensor> tensors, const AdamWOptions& options) {
  step_in_blocks(tensors, options, adamw_factors(options, tensors), SNUG_FOR_ISA(adamw_range));
}

void adamw_8bit_step(std::span<const AdamW8bitTensor> tensors, const AdamWOptions& options) {
  const DynamicMap& first_map = signed_dynamic_map();
  const DynamicMap& second_map = unsigned_dynamic_map();
  const auto range = SNUG_FOR_ISA(adamw_8bit_range);
  step_in_blocks(tensors, options, adamw_factors(options),
                 [&](const AdamW8bitTensor& tensor, const AdamWFactors& factors, int64_t begin,
                     int64_t end) { range(tensor, factors, first_map, second_map, begin, end); });
}

void lion_step(std::span<const LionTensor> tensors, const LionOptions& options) {
  step_in_blocks(tensors, options, lion_factors(options, tensors), SNUG_FOR_ISA(lion_range));
}

void sgd_step(std::span<const SgdTensor> tensors, const SgdOptions& options) {
  step_in_blocks(tensors, options, sgd_factors(options, tensors), SNUG_FOR_ISA(sgd_range));
}

// The blocks' sums are added in order.
SumOfSquares sum_of_squares(std::span<const TensorView> tensors, int num_threads) {
  const std::vector<TensorBlock> blocks = tensor_blocks(tensors);
  std::vector<double> sums(blocks.size());
  const auto range = SNUG_FOR_ISA(sum_of_squares_range);
  parallel_blocks(static_cast<int64_t>(blocks.size()), num_threads, [&](int64_t b) {
    sums[b] = range(tensors[blocks[b].tensor], blocks[b].begin, blocks[b].end);
  });
  SumOfSquares result;
  for (const double sum : sums) result.value += sum;
  result.finite = std::isfinite(result.value);
  return result;
}

}  // namespace cpu
}  // namespace snug::kernels
