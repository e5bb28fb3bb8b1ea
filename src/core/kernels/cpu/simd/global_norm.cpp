// Sum of squares of a stretch, in double; see core/kernels/optimizers.h.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/cpu/simd/loops.h"

namespace snug::kernels::cpu {
namespace {

// Half as many lanes as floats fill one register of doubles.
constexpr int kHalf = kLanes / 2;
typedef double Doubles __attribute__((vector_size(kHalf * 8)));

template <class T>
double sum_squares(const typename T::storage* x, int64_t begin, int64_t end) {
  Doubles sums[kSlots] = {};
  int64_t i = begin;
  for (; i + kSlots * kHalf <= end; i += kSlots * kHalf) {
    for (int k = 0; k < kSlots; ++k) {
      const Doubles v = __builtin_convertvector(load<kHalf>(T{}, x + i + k * kHalf), Doubles);
      sums[k] += v * v;
    }
  }
  const Doubles sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  double total = 0;
  for (int k = 0; k < kHalf; ++k) total += sum[k];
  for (; i < end; ++i) {
    const double v = load_one(T{}, x + i);
    total += v * v;
  }
  return total;
}

}  // namespace

namespace SNUG_ISA {

double sum_of_squares_range(const TensorView& tensor, int64_t begin, int64_t end) {
  double sum = 0;
  with_type(tensor.type, [&](auto type) {
    using T = decltype(type);
    sum = sum_squares<T>(static_cast<const typename T::storage*>(tensor.data), begin, end);
  });
  return sum;
}

}  // namespace SNUG_ISA
}  // namespace snug::kernels::cpu
