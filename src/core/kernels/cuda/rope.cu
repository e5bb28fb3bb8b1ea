// A block's threads are pairs of one token, one behind the other: both halves, or all neighbours,
// are read and written in whole lines, and the heads of a token find its table row in the cache.
// Bytes an element, T those of its type:
//   turn: reads T, writes T
// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "base/error.h"
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/operators.h"

namespace snug::kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
struct Heads {
  T* x;
  int64_t token_stride;
};

template <class T>
struct Rotation {
  Heads<T> heads, more;
  const int32_t* positions;
  const float* cos;
  const float* sin;
  int num_heads;
  int pairs;  // of a token: all heads * half
  int half;
  int head_dim;
  int step;      // from a pair's first element to the next pair's
  int distance;  // of a pair's elements
  float direction;
};

template <class T>
__global__ void __launch_bounds__(kThreads) turn(Rotation<T> a) {
  const int pair = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  if (pair >= a.pairs) return;
  const int64_t token = blockIdx.x;
  const int head = pair / a.half, i = pair % a.half;
  const int64_t row = a.positions[token] * int64_t{a.half};
  const float c = a.cos[row + i], s = a.direction * a.sin[row + i];
  const bool is_more = head >= a.num_heads;
  const Heads<T>& heads = is_more ? a.more : a.heads;
  const int64_t within = int64_t{is_more ? head - a.num_heads : head} * a.head_dim;
  T* low = heads.x + token * heads.token_stride + within + i * a.step;
  T* high = low + a.distance;
  const float x = to_float(*low), y = to_float(*high);
  *low = from_float<T>(x * c - y * s);
  *high = from_float<T>(y * c + x * s);
}

template <class T>
Heads<T> heads_at(void* x, int64_t token_stride, int64_t heads, int64_t head_dim) {
  return {static_cast<T*>(x), token_stride != 0 ? token_stride : heads * head_dim};
}

}  // namespace

void rope_apply(const RopeApply& args, cudaStream_t stream) {
  const int64_t width = args.rotary_dim != 0 ? args.rotary_dim : args.head_dim;
  SNUG_CHECK(width % 2 == 0 && width <= args.head_dim,
             "rotary width {} must be even and at most the head width {}", width, args.head_dim);
  const int64_t pairs = (args.heads + args.more_heads) * width / 2;
  SNUG_CHECK(pairs <= std::numeric_limits<int>::max(), "{} pairs a token are too many to rotate",
             pairs);
  if (args.tokens == 0 || pairs == 0) return;
  const bool neighbours = args.paired == RopePairs::Neighbours;
  with_type(args.type, [&](auto type) {
    using T = decltype(type);
    const Rotation<T> a = {
        heads_at<T>(args.x, args.token_stride, args.heads, args.head_dim),
        heads_at<T>(args.more_x, args.more_token_stride, args.more_heads, args.head_dim),
        args.positions,
        args.cos,
        args.sin,
        static_cast<int>(args.heads),
        static_cast<int>(pairs),
        static_cast<int>(width / 2),
        static_cast<int>(args.head_dim),
        neighbours ? 2 : 1,
        neighbours ? 1 : static_cast<int>(width / 2),
        args.direction == RopeDirection::Forward ? 1.f : -1.f};
    launch("rope_apply", turn<T>, Grid{args.tokens, blocks_for(pairs, kThreads)}, kThreads, 0,
           stream, a);
  });
}

}  // namespace snug::kernels::cuda
