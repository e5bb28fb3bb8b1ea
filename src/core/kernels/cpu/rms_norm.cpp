// Checks, weight conversion and the fixed-block sum of the weight's gradient; rows in
// simd/rms_norm.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/rms_norm.h"

#include <vector>

#include "base/error.h"
#include "core/kernels/cpu/elementwise.h"
#include "core/kernels/cpu/gradient_shares.h"
#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/simd/kernels.h"

namespace snug::kernels::cpu {
namespace {

std::vector<float> float_weight(const void* weight, Scalar type, NormForm form, int64_t dim) {
  std::vector<float> result(static_cast<size_t>(dim), 1.0f);
  if (weight == nullptr) return result;
  cast(weight, type, result.data(), Scalar::F32, dim, 1);
  if (form == NormForm::Gemma) {
    for (float& w : result) w += 1.0f;
  }
  return result;
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
  const RowBlocks blocks(args.rows);
  GradientShares dweight(args.dweight, blocks, args.dim);
  parallel_blocks(blocks.count(), args.num_threads, [&](int64_t block) {
    rows(args, weight.data(), dweight.of(block), blocks.begin(block), blocks.end(block));
  });
  dweight.add_up();
}

}  // namespace snug::kernels::cpu
