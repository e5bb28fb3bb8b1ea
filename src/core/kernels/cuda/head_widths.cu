// One launch for all arrays, a row of the grid for each; one element of the copy a thread.
// Bytes an element of the copy, T those of its type:
//   copy_heads_to_width: reads T, writes T
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/head_widths.h"

#include <algorithm>

#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/operators.h"

namespace snug::kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    copy_heads_to_width(const __grid_constant__ HeadWidths a) {
  const HeadWidths::Copy& copy = a.copies[blockIdx.y];
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= copy.tokens * copy.heads * a.to_dim) return;
  const int64_t head = i / a.to_dim, within = i % a.to_dim;
  const int64_t token = head / copy.heads;
  const int64_t from = token * copy.from_stride + head % copy.heads * a.from_dim + within;
  static_cast<T*>(copy.to)[i] =
      within < a.from_dim ? static_cast<const T*>(copy.from)[from] : from_float<T>(0.f);
}

}  // namespace

void change_head_widths(const HeadWidths& args, cudaStream_t stream) {
  int64_t most = 0, arrays = 0;
  for (const HeadWidths::Copy& copy : args.copies) {
    if (copy.tokens == 0) break;
    most = std::max(most, copy.tokens * copy.heads * args.to_dim);
    ++arrays;
  }
  if (most == 0) return;
  with_type(args.type, [&](auto type) {
    launch("change_head_widths", copy_heads_to_width<decltype(type)>,
           Grid{blocks_for(most, kThreads), arrays}, kThreads, 0, stream, args);
  });
}

}  // namespace snug::kernels::cuda
