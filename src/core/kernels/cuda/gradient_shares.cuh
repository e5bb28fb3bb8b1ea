// The gradient of a vector of weights as the sum of shares, one of each block of a backward, in
// their order: so it depends neither on the device nor on chance. The norms' headers say its bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/vector_gradient.h"

namespace snug::kernels::cuda {
namespace {

constexpr int kBackwardBlocks = 256;
constexpr int kShareThreads = 128;

template <class T>
__global__ void __launch_bounds__(kShareThreads)
    add_shares(const float* shares, T* total, int64_t dim, bool accumulate) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= dim) return;
  float sum = 0;
  for (int block = 0; block < kBackwardBlocks; ++block) sum += shares[block * dim + i];
  if (accumulate) sum += to_float(total[i]);
  total[i] = from_float<T>(sum);
}

// `shares` (kBackwardBlocks, D)
void add_up(const char* name, const float* shares, const VectorGradient& total, int64_t dim,
            cudaStream_t stream) {
  if (total.data == nullptr) return;
  with_type(total.type, [&](auto type) {
    using T = decltype(type);
    launch(name, add_shares<T>, blocks_for(dim, kShareThreads), kShareThreads, 0, stream, shares,
           static_cast<T*>(total.data), dim, total.accumulate);
  });
}

}  // namespace
}  // namespace snug::kernels::cuda
