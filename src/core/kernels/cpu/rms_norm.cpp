// Checks, weight conversion and the fixed-block sum of the weight's gradient; rows in
// simd/rms_norm.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/rms_norm.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "core/kernels/cpu/elementwise.h"
#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/simd/kernels.h"

namespace snug::kernels::cpu {
namespace {

// Blocks of rows whose shares of dweight are added in order. Their number bounds the scratch memory
// (64 x D floats) and the threads that backward can use.
constexpr int64_t kMaxBlocks = 64;
constexpr int64_t kMinRowsPerBlock = 16;

std::vector<float> float_weight(const void* weight, Scalar type, NormForm form, int64_t dim) {
  std::vector<float> result(static_cast<size_t>(dim));
  cast(weight, type, result.data(), Scalar::F32, dim, 1);
  if (form == NormForm::Gemma) {
    for (float& w : result) w += 1.0f;
  }
  return result;
}

void add_blocks(const std::vector<float>& partial, int64_t num_blocks,
                const RmsNormBackward& args) {
  if (!args.accumulate_dweight) std::fill_n(args.dweight, args.dim, 0.0f);
  for (int64_t block = 0; block < num_blocks; ++block) {
    const float* from = partial.data() + block * args.dim;
    for (int64_t i = 0; i < args.dim; ++i) args.dweight[i] += from[i];
  }
}

}  // namespace

void rms_norm_forward(const RmsNormForward& args) {
  SNUG_CHECK(args.rows >= 0 && args.dim > 0, "rms_norm of {} rows of {}", args.rows, args.dim);
  SNUG_CHECK((args.residual == nullptr) == (args.sum == nullptr), "residual and sum go together");
  const std::vector<float> weight =
      float_weight(args.weight, args.weight_type, args.form, args.dim);
  const auto rows = SNUG_FOR_ISA(rms_norm_forward_rows);
  parallel_ranges(args.rows, args.dim, args.num_threads,
                  [&](int64_t begin, int64_t end) { rows(args, weight.data(), begin, end); });
}

void rms_norm_backward(const RmsNormBackward& args) {
  SNUG_CHECK(args.rows >= 0 && args.dim > 0, "rms_norm of {} rows of {}", args.rows, args.dim);
  const std::vector<float> weight =
      float_weight(args.weight, args.weight_type, args.form, args.dim);
  const auto rows = SNUG_FOR_ISA(rms_norm_backward_rows);
  const int64_t step = std::max(kMinRowsPerBlock, (args.rows + kMaxBlocks - 1) / kMaxBlocks);
  const int64_t num_blocks = (args.rows + step - 1) / step;
  const bool with_weight = args.dweight != nullptr;
  std::vector<float> partial(with_weight ? static_cast<size_t>(num_blocks * args.dim) : 0);
  parallel_blocks(num_blocks, args.num_threads, [&](int64_t block) {
    float* dweight = with_weight ? partial.data() + block * args.dim : nullptr;
    rows(args, weight.data(), dweight, block * step, std::min(args.rows, (block + 1) * step));
  });
  if (with_weight) add_blocks(partial, num_blocks, args);
}

}  // namespace snug::kernels::cpu
