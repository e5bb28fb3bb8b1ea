// Casts and sums of a stretch; see core/kernels/cpu/elementwise.h.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/cpu/simd/loops.h"

namespace snug::kernels::cpu {
namespace SNUG_ISA {

void cast_range(const void* from, Scalar from_type, void* to, Scalar to_type, int64_t begin,
                int64_t end) {
  with_type(from_type, [&](auto source) {
    with_type(to_type, [&](auto target) {
      sweep(begin, end, [&](int64_t i, auto lanes) {
        write<decltype(target)>(to, i, read<decltype(source)>(from, i, lanes), lanes);
      });
    });
  });
}

void add_range(const void* a, const void* b, void* c, Scalar type, int64_t begin, int64_t end) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    sweep(begin, end, [&](int64_t i, auto lanes) {
      write<T>(c, i, read<T>(a, i, lanes) + read<T>(b, i, lanes), lanes);
    });
  });
}

void accumulate_range(void* y, Scalar y_type, const void* x, Scalar x_type, float alpha,
                      int64_t begin, int64_t end) {
  with_type(y_type, [&](auto y_tag) {
    with_type(x_type, [&](auto x_tag) {
      using Y = decltype(y_tag);
      using X = decltype(x_tag);
      sweep(begin, end, [&](int64_t i, auto lanes) {
        write<Y>(y, i, read<Y>(y, i, lanes) + alpha * read<X>(x, i, lanes), lanes);
      });
    });
  });
}

void scale_range(void* x, Scalar type, float factor, int64_t begin, int64_t end) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    sweep(begin, end,
          [&](int64_t i, auto lanes) { write<T>(x, i, read<T>(x, i, lanes) * factor, lanes); });
  });
}

void fill_range(void* x, Scalar type, float value, int64_t begin, int64_t end) {
  with_type(type, [&](auto tag) {
    sweep(begin, end,
          [&](int64_t i, auto lanes) { write<decltype(tag)>(x, i, broadcast(value), lanes); });
  });
}

}  // namespace SNUG_ISA
}  // namespace snug::kernels::cpu
