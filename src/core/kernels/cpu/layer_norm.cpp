// Checks, conversion of weight and bias, and the fixed-block sums of their gradients; rows in
// simd/layer_norm.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/layer_norm.h"

#include <vector>

#include "base/error.h"
#include "core/kernels/cpu/elementwise.h"
#include "core/kernels/cpu/gradient_shares.h"
#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/simd/kernels.h"

namespace snug::kernels::cpu {
namespace {

std::vector<float> in_float(const void* values, Scalar type, int64_t dim, float without) {
  std::vector<float> result(static_cast<size_t>(dim), without);
  if (values != nullptr) cast(values, type, result.data(), Scalar::F32, dim, 1);
  return result;
}

}  // namespace

void layer_norm_forward(const LayerNormForward& args) {
  SNUG_CHECK(args.rows >= 0 && args.dim > 0, "layer_norm of {} rows of {}", args.rows, args.dim);
  SNUG_CHECK((args.residual == nullptr) == (args.sum == nullptr), "residual and sum go together");
  const std::vector<float> weight = in_float(args.weight, args.weight_type, args.dim, 1.0F);
  const std::vector<float> bias = in_float(args.bias, args.weight_type, args.dim, 0.0F);
  const auto rows = SNUG_FOR_ISA(layer_norm_forward_rows);
  parallel_ranges(args.rows, args.dim, args.num_threads, [&](int64_t begin, int64_t end) {
    rows(args, weight.data(), bias.data(), begin, end);
  });
}

void layer_norm_backward(const LayerNormBackward& args) {
  SNUG_CHECK(args.rows >= 0 && args.dim > 0, "layer_norm of {} rows of {}", args.rows, args.dim);
  const std::vector<float> weight = in_float(args.weight, args.weight_type, args.dim, 1.0F);
  const auto rows = SNUG_FOR_ISA(layer_norm_backward_rows);
  const RowBlocks blocks(args.rows);
  GradientShares dweight(args.dweight, blocks, args.dim), dbias(args.dbias, blocks, args.dim);
  parallel_blocks(blocks.count(), args.num_threads, [&](int64_t block) {
    rows(args, weight.data(), dweight.of(block), dbias.of(block), blocks.begin(block),
         blocks.end(block));
  });
  dweight.add_up();
  dbias.add_up();
}

}  // namespace snug::kernels::cpu
