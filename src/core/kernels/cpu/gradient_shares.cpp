// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/gradient_shares.h"

#include <algorithm>

#include "core/kernels/cpu/elementwise.h"

namespace snug::kernels::cpu {
namespace {

constexpr int64_t kMaxBlocks = 64;
constexpr int64_t kMinRowsPerBlock = 16;

void write_gradient(const VectorGradient& to, const float* sum, int64_t dim) {
  if (to.accumulate)
    accumulate(to.data, to.type, sum, Scalar::F32, dim, 1.0F, /*num_threads=*/1);
  else
    cast(sum, Scalar::F32, to.data, to.type, dim, /*num_threads=*/1);
}

}  // namespace

RowBlocks::RowBlocks(int64_t rows)
    : rows_(rows), step_(std::max(kMinRowsPerBlock, (rows + kMaxBlocks - 1) / kMaxBlocks)) {}

int64_t RowBlocks::end(int64_t block) const { return std::min(rows_, (block + 1) * step_); }

// One share more than blocks: the sum.
GradientShares::GradientShares(const VectorGradient& total, const RowBlocks& blocks, int64_t dim)
    : total_(total),
      dim_(dim),
      shares_(static_cast<size_t>(total.data != nullptr ? (blocks.count() + 1) * dim : 0)) {}

void GradientShares::add_up() {
  if (total_.data == nullptr) return;
  const auto end = static_cast<int64_t>(shares_.size()) - dim_;
  float* sum = shares_.data() + end;
  for (int64_t share = 0; share < end; share += dim_)
    for (int64_t i = 0; i < dim_; ++i) sum[i] += shares_[static_cast<size_t>(share + i)];
  write_gradient(total_, sum, dim_);
}

}  // namespace snug::kernels::cpu
