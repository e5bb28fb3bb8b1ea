// Checks, conversion of weight and bias, and the fixed-block sums of their gradients; rows in
// simd/layer_norm.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/layer_norm.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "core/kernels/cpu/elementwise.h"
#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/simd/kernels.h"

namespace snug::kernels::cpu {
namespace {

// As in rms_norm.cpp: few enough to bound the scratch memory, enough for many threads.
constexpr int64_t kMaxBlocks = 64;
constexpr int64_t kMinRowsPerBlock = 16;

std::vector<float> in_float(const void* values, Scalar type, int64_t dim, float without) {
  std::vector<float> result(static_cast<size_t>(dim), without);
  if (values != nullptr) cast(values, type, result.data(), Scalar::F32, dim, 1);
  return result;
}

// Each block's share of a gradient, added in order; nothing where the gradient is not wanted.
class Shares {
 public:
  Shares(float* total, int64_t num_blocks, int64_t dim)
      : total_(total), dim_(dim), shares_(static_cast<size_t>(total ? num_blocks * dim : 0)) {}
  float* of(int64_t block) { return total_ == nullptr ? nullptr : shares_.data() + block * dim_; }
  void add_up() const {
    if (total_ == nullptr) return;
    std::fill_n(total_, dim_, 0.0f);
    const auto size = static_cast<int64_t>(shares_.size());
    for (int64_t share = 0; share < size; share += dim_)
      for (int64_t i = 0; i < dim_; ++i) total_[i] += shares_[share + i];
  }

 private:
  float* total_;
  int64_t dim_;
  std::vector<float> shares_;
};

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
  const int64_t step = std::max(kMinRowsPerBlock, (args.rows + kMaxBlocks - 1) / kMaxBlocks);
  const int64_t num_blocks = (args.rows + step - 1) / step;
  Shares dweight(args.dweight, num_blocks, args.dim), dbias(args.dbias, num_blocks, args.dim);
  parallel_blocks(num_blocks, args.num_threads, [&](int64_t block) {
    rows(args, weight.data(), dweight.of(block), dbias.of(block), block * step,
         std::min(args.rows, (block + 1) * step));
  });
  dweight.add_up();
  dbias.add_up();
}

}  // namespace snug::kernels::cpu
