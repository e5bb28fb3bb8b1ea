// A stretch of a dropout; see core/kernels/dropout.h.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/cpu/simd/loops.h"
#include "core/kernels/cpu/simd/random_rounding.h"

namespace snug::kernels::cpu {
namespace SNUG_ISA {
namespace {

// Within one row.
void noise_range(const Dropout& a, int64_t begin, int64_t end) {
  const F size = broadcast(*a.noise * a.noise_scale * 0x1p-31f);
  with_type(a.type, [&](auto tag) {
    using T = decltype(tag);
    sweep(begin, end, [&](int64_t i, auto lanes) {
      const F drawn = __builtin_convertvector((I)random_bits(a.key, a.first_index + i), F);
      write<T>(a.out, i, read<T>(a.x, i, lanes) + size * drawn, lanes);
    });
  });
}

}  // namespace

void dropout_range(const Dropout& args, int64_t begin, int64_t end) {
  const Dropout a = args;
  if (a.noise != nullptr) return noise_range(a, begin, end);
  const uint32_t threshold = a.threshold();
  const F scale = broadcast(a.scale());
  with_type(a.type, [&](auto tag) {
    using T = decltype(tag);
    sweep(begin, end, [&](int64_t i, auto lanes) {
      const F x = read<T>(a.x, i, lanes) * scale;
      const F kept = random_bits(a.key, a.first_index + i) >= threshold ? x : F{};
      write<T>(a.out, i, a.accumulate ? read<T>(a.out, i, lanes) + kept : kept, lanes);
    });
  });
}

}  // namespace SNUG_ISA
}  // namespace snug::kernels::cpu
