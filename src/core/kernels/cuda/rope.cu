// One thread a pair (i, i + R/2), neighbours in i: both halves are read and written in whole lines,
// and the heads of a token find its table row in the cache.
// Bytes an element, T those of its type:
//   turn: reads T, writes T
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/operators.h"

namespace snug::kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
struct Rotation {
  T* x;
  const int32_t* positions;
  const float* cos;
  const float* sin;
  int64_t pairs;  // tokens * heads * half
  int64_t heads;
  int64_t half;
  int64_t head_dim;
  int64_t token_stride;
  float direction;
};

template <class T>
__global__ void __launch_bounds__(kThreads) turn(Rotation<T> a) {
  const int64_t pair = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (pair >= a.pairs) return;
  const int64_t i = pair % a.half, head = pair / a.half % a.heads, token = pair / a.half / a.heads;
  const int64_t row = a.positions[token] * a.half;
  const float c = a.cos[row + i], s = a.direction * a.sin[row + i];
  T* low = a.x + token * a.token_stride + head * a.head_dim + i;
  T* high = low + a.half;
  const float x = to_float(*low), y = to_float(*high);
  *low = from_float<T>(x * c - y * s);
  *high = from_float<T>(y * c + x * s);
}

}  // namespace

void rope_apply(const RopeApply& args, cudaStream_t stream) {
  const int64_t width = args.rotary_dim != 0 ? args.rotary_dim : args.head_dim;
  SNUG_CHECK(width % 2 == 0 && width <= args.head_dim,
             "rotary width {} must be even and at most the head width {}", width, args.head_dim);
  const int64_t pairs = args.tokens * args.heads * width / 2;
  if (pairs == 0) return;
  with_type(args.type, [&](auto type) {
    using T = decltype(type);
    const Rotation<T> a = {static_cast<T*>(args.x),
                           args.positions,
                           args.cos,
                           args.sin,
                           pairs,
                           args.heads,
                           width / 2,
                           args.head_dim,
                           args.token_stride != 0 ? args.token_stride : args.heads * args.head_dim,
                           args.direction == RopeDirection::Forward ? 1.f : -1.f};
    launch("rope_apply", turn<T>, blocks_for(pairs, kThreads), kThreads, 0, stream, a);
  });
}

}  // namespace snug::kernels::cuda
