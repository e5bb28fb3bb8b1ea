// RMSNorm of rows; see core/kernels/rms_norm.h. A row stays in the first-level cache between
// the sweep that sums it and the one that scales it.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/cpu/simd/loops.h"

namespace snug::kernels::cpu {
namespace {

template <class T>
SNUG_INLINE float sum_of_squares_of_row(const void* x, int64_t begin, int64_t end) {
  Sums sums;
  sweep_slots(begin, end, [&](int64_t i, auto lanes, auto slot) {
    const F v = read<T>(x, i, lanes);
    sums.slots[slot.value] += v * v;
  });
  return sums.total();
}

// Writes x + residual, and sums the squares of what was written.
template <class T>
SNUG_INLINE float add_and_sum_squares(const RmsNormForward& args, int64_t begin, int64_t end) {
  Sums sums;
  sweep_slots(begin, end, [&](int64_t i, auto lanes, auto slot) {
    const F v = round_to<T>(read<T>(args.x, i, lanes) + read<T>(args.residual, i, lanes));
    write<T>(args.sum, i, v, lanes);
    sums.slots[slot.value] += v * v;
  });
  return sums.total();
}

template <class T>
SNUG_INLINE F normalized(F x, float rstd, NormForm form) {
  return form == NormForm::Llama ? round_to<T>(x * rstd) : x * rstd;
}

template <class T>
SNUG_INLINE void forward_row(const RmsNormForward& args, const float* weight, int64_t row) {
  const int64_t begin = row * args.dim, end = begin + args.dim;
  const void* source = args.residual != nullptr ? args.sum : args.x;
  const float squares = args.residual != nullptr ? add_and_sum_squares<T>(args, begin, end)
                                                 : sum_of_squares_of_row<T>(args.x, begin, end);
  const float rstd = 1.f / __builtin_sqrtf(squares / static_cast<float>(args.dim) + args.eps);
  if (args.rstd != nullptr) args.rstd[row] = rstd;
  sweep(0, args.dim, [&](int64_t i, auto lanes) {
    const F n = normalized<T>(read<T>(source, begin + i, lanes), rstd, args.form);
    write<T>(args.y, begin + i, n * read<F32>(weight, i, lanes), lanes);
  });
}

// dx = rstd * (dy * w - n * mean(dy * w * n)) + d_residual with n = x * rstd.
template <class T>
SNUG_INLINE void backward_row(const RmsNormBackward& args, const float* weight, float* dweight,
                              int64_t row) {
  const int64_t begin = row * args.dim;
  const float rstd = args.rstd[row];
  Sums sums;
  sweep_slots(0, args.dim, [&](int64_t i, auto lanes, auto slot) {
    const F g = read<T>(args.dy, begin + i, lanes) * read<F32>(weight, i, lanes);
    sums.slots[slot.value] += g * read<T>(args.x, begin + i, lanes);
  });
  const float mean = sums.total() * rstd / static_cast<float>(args.dim);
  sweep(0, args.dim, [&](int64_t i, auto lanes) {
    const F x = read<T>(args.x, begin + i, lanes), dy = read<T>(args.dy, begin + i, lanes);
    F dx = rstd * (dy * read<F32>(weight, i, lanes) - x * rstd * mean);
    if (args.d_residual != nullptr) dx += read<T>(args.d_residual, begin + i, lanes);
    if (dweight != nullptr) {
      const F share = dy * normalized<T>(x, rstd, args.form);
      write<F32>(dweight, i, read<F32>(dweight, i, lanes) + share, lanes);
    }
    write<T>(args.dx, begin + i, dx, lanes);
  });
}

}  // namespace

namespace SNUG_ISA {

void rms_norm_forward_rows(const RmsNormForward& shared, const float* weight, int64_t begin,
                           int64_t end) {
  with_type(shared.type, [&](auto type) {
    const auto args = shared;
    for (int64_t row = begin; row < end; ++row) forward_row<decltype(type)>(args, weight, row);
  });
}

void rms_norm_backward_rows(const RmsNormBackward& shared, const float* weight, float* dweight,
                            int64_t begin, int64_t end) {
  with_type(shared.type, [&](auto type) {
    const auto args = shared;
    for (int64_t row = begin; row < end; ++row) {
      backward_row<decltype(type)>(args, weight, dweight, row);
    }
  });
}

}  // namespace SNUG_ISA
}  // namespace snug::kernels::cpu
