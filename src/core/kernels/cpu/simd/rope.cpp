// Rotation of element pairs (i, i + R/2); see core/kernels/rope.h.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/cpu/simd/loops.h"

namespace snug::kernels::cpu {
namespace {

template <class T>
SNUG_INLINE void turn_head(const RopeApply& args, int64_t start, const float* cos, const float* sin,
                           int64_t half, float direction) {
  sweep(0, half, [&](int64_t i, auto lanes) {
    const F c = read<F32>(cos, i, lanes), s = direction * read<F32>(sin, i, lanes);
    const F low = read<T>(args.x, start + i, lanes);
    const F high = read<T>(args.x, start + half + i, lanes);
    write<T>(args.x, start + i, low * c - high * s, lanes);
    write<T>(args.x, start + half + i, high * c + low * s, lanes);
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
      for (int64_t head = 0; head < args.heads; ++head) {
        const int64_t start = token * args.token_stride + head * args.head_dim;
        turn_head<decltype(type)>(args, start, args.cos + row, args.sin + row, half, direction);
      }
    }
  });
}

}  // namespace SNUG_ISA
}  // namespace snug::kernels::cpu
