// The gradient of a vector of weights as a sum over rows: each block of rows adds up its share, and
// the shares are added in order, so that every thread count gives the same bits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "core/kernels/vector_gradient.h"

namespace snug::kernels::cpu {

// Their number bounds the scratch memory (64 x D floats) and the threads that a backward can use.
class RowBlocks {
 public:
  explicit RowBlocks(int64_t rows);
  int64_t count() const { return (rows_ + step_ - 1) / step_; }
  int64_t begin(int64_t block) const { return block * step_; }
  int64_t end(int64_t block) const;

 private:
  int64_t rows_, step_;
};

class GradientShares {
 public:
  GradientShares(const VectorGradient& total, const RowBlocks& blocks, int64_t dim);
  // (D) zeros to add to; null where the gradient is not wanted.
  float* of(int64_t block) { return shares_.empty() ? nullptr : shares_.data() + block * dim_; }
  void add_up();

 private:
  VectorGradient total_;
  int64_t dim_;
  std::vector<float> shares_;
};

}  // namespace snug::kernels::cpu
