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

template <class Formula>
ElementFactors<Formula> element_factors(const ElementOptions& options,
                                        std::span<const ElementTensor<Formula::kStates>> tensors) {
  check_states(tensors, Formula::kName);
  const char* const refused = refuses<Formula>(options);
  SNUG_CHECK(refused == nullptr, "{}: {}", Formula::kName, refused);
  ElementFactors<Formula> factors{Formula::factors(options)};
  factors.keeps_states = keeps_states<Formula>(options);
  for (const auto& tensor : tensors)
    for (int k = 0; k < Formula::kStates; ++k)
      SNUG_CHECK(!factors.keeps_states || tensor.count == 0 || tensor.states[k] != nullptr,
                 "{} needs {} for each tensor", Formula::kName,
                 Formula::kStateNames[static_cast<size_t>(k)]);
  factors.grad_scale = options.grad_scale;
  factors.stochastic = options.stochastic_rounding;
  return factors;
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

#define SNUG_ELEMENT_WISE(Formula)                                                     \
  template <>                                                                          \
  void element_step<Formula>(std::span<const ElementTensor<Formula::kStates>> tensors, \
                             const ElementOptions& options) {                          \
    step_in_blocks(tensors, options, element_factors<Formula>(options, tensors),       \
                   SNUG_FOR_ISA(Formula##_range));                                     \
  }
#include "core/kernels/optimizers/all.def"
#undef SNUG_ELEMENT_WISE

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

#define SNUG_ELEMENT_WISE(Formula)                           \
  template ElementFactors<Formula> element_factors<Formula>( \
      const ElementOptions&, std::span<const ElementTensor<Formula::kStates>>);
#include "core/kernels/optimizers/all.def"
#undef SNUG_ELEMENT_WISE

}  // namespace snug::kernels
