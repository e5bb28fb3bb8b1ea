// Block sums added in order; a block is summed in simd/global_norm.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/optimizers/global_norm.h"

#include <cmath>

#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/simd/kernels.h"

namespace snug::kernels::cpu {

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

}  // namespace snug::kernels::cpu
