// Gradients of vectors of weights as sums of shares, one of each block of a backward, in
// their order: so it depends neither on the device nor on chance. The norms' headers say its bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/vector_gradient.h"

namespace snug::kernels::cuda {
namespace {

constexpr int kBackwardBlocks = 256;
constexpr int kShareThreads = 128;

struct ShareSum {
  const float* shares = nullptr;  // (kBackwardBlocks, D)
  VectorGradient total;
};

// Adds the shares of one vector, or of two of one type, a row of the grid for each.
template <class T>
__global__ void __launch_bounds__(kShareThreads)
    add_shares(ShareSum first, ShareSum second, int64_t dim) {
  const ShareSum& a = blockIdx.y == 0 ? first : second;
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= dim) return;
  T* total = static_cast<T*>(a.total.data);
  float sum = 0;
  for (int block = 0; block < kBackwardBlocks; ++block) sum += a.shares[block * dim + i];
  if (a.total.accumulate) sum += to_float(total[i]);
  total[i] = from_float<T>(sum);
}

// Those that are wanted.
void add_up(const char* name, ShareSum first, ShareSum second, int64_t dim, cudaStream_t stream) {
  if (first.total.data == nullptr) std::swap(first, second);
  if (first.total.data == nullptr) return;
  const bool has_second = second.total.data != nullptr;
  if (has_second && second.total.type != first.total.type) {
    add_up(name, second, {}, dim, stream);
    return add_up(name, first, {}, dim, stream);
  }
  with_type(first.total.type, [&](auto type) {
    launch(name, add_shares<decltype(type)>,
           Grid{blocks_for(dim, kShareThreads), has_second ? 2 : 1}, kShareThreads, 0, stream,
           first, second, dim);
  });
}

}  // namespace
}  // namespace snug::kernels::cuda
