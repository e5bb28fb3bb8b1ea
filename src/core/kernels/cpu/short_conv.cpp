// Checks, weights as float32 tap by tap, and the fixed-block sums of their gradients; rows in
// simd/short_conv.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/short_conv.h"

#include <vector>

#include "base/error.h"
#include "core/kernels/cpu/elementwise.h"
#include "core/kernels/cpu/gradient_shares.h"
#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/simd/kernels.h"

namespace snug::kernels::cpu {
namespace {

void check(const ShortConvForward& args) {
  SNUG_CHECK(args.rows >= 0 && args.features > 0 && args.taps > 0 && args.taps <= kMostTaps,
             "a short convolution of {} rows of {} features with {} taps", args.rows, args.features,
             args.taps);
}

std::vector<float> as_floats(const void* values, Scalar type, int64_t count) {
  std::vector<float> result(static_cast<size_t>(values != nullptr ? count : 0));
  if (values != nullptr) cast(values, type, result.data(), Scalar::F32, count, 1);
  return result;
}

// (F, K) -> (K, F), the row's own tap first.
class FloatWeights {
 public:
  explicit FloatWeights(const ShortConvForward& args)
      : taps_(static_cast<size_t>(args.features * args.taps)),
        bias_(as_floats(args.bias, args.weight_type, args.features)) {
    const std::vector<float> weight =
        as_floats(args.weight, args.weight_type, args.features * args.taps);
    for (int64_t i = 0; i < args.features; ++i)
      for (int64_t j = 0; j < args.taps; ++j)
        taps_[static_cast<size_t>(j * args.features + i)] =
            weight[static_cast<size_t>((i + 1) * args.taps - 1 - j)];
  }
  ShortConvWeights get() const { return {taps_.data(), bias_.empty() ? nullptr : bias_.data()}; }

 private:
  std::vector<float> taps_, bias_;
};

// A block's shares, from (K + 1, F) to those of the weight (F, K) and of the bias (F).
void hand_over(const std::vector<float>& shares, const ShortConvForward& args, float* weight,
               float* bias) {
  const int64_t features = args.features, taps = args.taps;
  for (int64_t i = 0; weight != nullptr && i < features; ++i)
    for (int64_t j = 0; j < taps; ++j)
      weight[(i + 1) * taps - 1 - j] = shares[static_cast<size_t>(j * features + i)];
  for (int64_t i = 0; bias != nullptr && i < features; ++i)
    bias[i] = shares[static_cast<size_t>(taps * features + i)];
}

}  // namespace

void short_conv_forward(const ShortConvForward& args) {
  check(args);
  const FloatWeights weights(args);
  const auto rows = SNUG_FOR_ISA(short_conv_forward_rows);
  parallel_ranges(args.rows, args.features, args.num_threads,
                  [&](int64_t begin, int64_t end) { rows(args, weights.get(), begin, end); });
}

void short_conv_backward(const ShortConvBackward& args) {
  const ShortConvForward& forward = args.forward;
  check(forward);
  const FloatWeights weights(forward);
  const auto rows = SNUG_FOR_ISA(short_conv_backward_rows);
  const RowBlocks blocks(forward.rows);
  GradientShares dweight(args.dweight, blocks, forward.features * forward.taps);
  GradientShares dbias(args.dbias, blocks, forward.features);
  const bool trains = args.dweight.data != nullptr || args.dbias.data != nullptr;
  parallel_blocks(blocks.count(), forward.num_threads, [&](int64_t block) {
    std::vector<float> shares(
        static_cast<size_t>(trains ? (forward.taps + 1) * forward.features : 0));
    rows(args, weights.get(), trains ? shares.data() : nullptr, blocks.begin(block),
         blocks.end(block));
    if (trains) hand_over(shares, forward, dweight.of(block), dbias.of(block));
  });
  dweight.add_up();
  dbias.add_up();
}

}  // namespace snug::kernels::cpu
