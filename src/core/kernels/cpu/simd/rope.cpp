// Rotation of element pairs; see core/kernels/rope.h.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/cpu/simd/loops.h"

namespace snug::kernels::cpu {
namespace {

// The angles of one token.
struct Angles {
  const float* cos;
  const float* sin;
  int64_t half;
  float direction;
  RopePairs paired;
};

template <class T>
SNUG_INLINE void turn_neighbours(void* x, int64_t start, const Angles& angles) {
  auto* elements = static_cast<typename T::storage*>(x) + start;
  for (int64_t i = 0; i < angles.half; i += kLanes) {
    const Part lanes{angles.half - i < kLanes ? angles.half - i : kLanes};
    typename T::storage lows[kLanes] = {}, highs[kLanes] = {};
    for (int64_t k = 0; k < lanes.count; ++k) {
      lows[k] = elements[2 * (i + k)];
      highs[k] = elements[2 * (i + k) + 1];
    }
    const F c = read<F32>(angles.cos, i, lanes),
            s = angles.direction * read<F32>(angles.sin, i, lanes);
    const F low = load_lanes<T>(lows), high = load_lanes<T>(highs);
    store<kLanes>(T{}, lows, low * c - high * s);
    store<kLanes>(T{}, highs, high * c + low * s);
    for (int64_t k = 0; k < lanes.count; ++k) {
      elements[2 * (i + k)] = lows[k];
      elements[2 * (i + k) + 1] = highs[k];
    }
  }
}

template <class T>
SNUG_INLINE void turn_head(void* x, int64_t start, const Angles& angles) {
  if (angles.paired == RopePairs::Neighbours) return turn_neighbours<T>(x, start, angles);
  const int64_t half = angles.half;
  sweep(0, half, [&](int64_t i, auto lanes) {
    const F c = read<F32>(angles.cos, i, lanes),
            s = angles.direction * read<F32>(angles.sin, i, lanes);
    const F low = read<T>(x, start + i, lanes), high = read<T>(x, start + half + i, lanes);
    write<T>(x, start + i, low * c - high * s, lanes);
    write<T>(x, start + half + i, high * c + low * s, lanes);
  });
}

}  // namespace

namespace SNUG_ISA {

void rope_apply_tokens(const RopeApply& shared, int64_t begin, int64_t end) {
  const int64_t half = shared.rotary_dim / 2;
  const float direction = shared.direction == RopeDirection::Forward ? 1.f : -1.f;
  with_type(shared.type, [&](auto type) {
    const auto args = shared;
    for (int64_t token = begin; token < end; ++token) {
      const int64_t row = args.positions[token] * half;
      const Angles angles{args.cos + row, args.sin + row, half, direction, args.paired};
      for (int64_t head = 0; head < args.heads; ++head)
        turn_head<decltype(type)>(args.x, token * args.token_stride + head * args.head_dim, angles);
      for (int64_t head = 0; head < args.more_heads; ++head)
        turn_head<decltype(type)>(args.more_x,
                                  token * args.more_token_stride + head * args.head_dim, angles);
    }
  });
}

}  // namespace SNUG_ISA
}  // namespace snug::kernels::cpu
