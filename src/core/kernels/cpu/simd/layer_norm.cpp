// LayerNorm of rows; see core/kernels/layer_norm.h. A row stays in the first-level cache
// between the sweeps that sum it, sum its deviations and scale it.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/cpu/simd/loops.h"

namespace snug::kernels::cpu {
namespace {

// Writes x + residual if there is one, and sums what is to be normed.
template <class T>
SNUG_INLINE float sum_row(const LayerNormForward& args, int64_t begin, int64_t end) {
  Sums sums;
  if (args.residual == nullptr)
    sweep_slots(begin, end, [&](int64_t i, auto lanes, auto slot) {
      sums.slots[slot.value] += read<T>(args.x, i, lanes);
    });
  else
    sweep_slots(begin, end, [&](int64_t i, auto lanes, auto slot) {
      const F v = round_to<T>(read<T>(args.x, i, lanes) + read<T>(args.residual, i, lanes));
      write<T>(args.sum, i, v, lanes);
      sums.slots[slot.value] += v;
    });
  return sums.total();
}

template <class T>
SNUG_INLINE float squared_deviations(const void* x, float mean, int64_t begin, int64_t end) {
  Sums sums;
  sweep_slots(begin, end, [&](int64_t i, auto lanes, auto slot) {
    const F v = fill_beyond(read<T>(x, i, lanes) - mean, F{}, lanes);
    sums.slots[slot.value] += v * v;
  });
  return sums.total();
}

template <class T>
SNUG_INLINE void forward_row(const LayerNormForward& args, const float* weight, const float* bias,
                             int64_t row) {
  const int64_t begin = row * args.dim, end = begin + args.dim;
  const auto dim = static_cast<float>(args.dim);
  const void* source = args.residual != nullptr ? args.sum : args.x;
  const float mean = sum_row<T>(args, begin, end) / dim;
  const float variance = squared_deviations<T>(source, mean, begin, end) / dim;
  const float rstd = 1.f / __builtin_sqrtf(variance + args.eps);
  if (args.mean != nullptr) args.mean[row] = mean;
  if (args.rstd != nullptr) args.rstd[row] = rstd;
  sweep(0, args.dim, [&](int64_t i, auto lanes) {
    const F n = (read<T>(source, begin + i, lanes) - mean) * rstd;
    const F y = n * read<F32>(weight, i, lanes) + read<F32>(bias, i, lanes);
    write<T>(args.y, begin + i, y, lanes);
  });
}

// dx = rstd * (g - mean(g) - n * mean(g * n)) + d_residual with g = dy * w, n = (x - mean) * rstd.
template <class T>
SNUG_INLINE void backward_row(const LayerNormBackward& args, const float* weight, float* dweight,
                              float* dbias, int64_t row) {
  const int64_t begin = row * args.dim;
  const auto dim = static_cast<float>(args.dim);
  const float mean = args.mean[row], rstd = args.rstd[row];
  Sums of_g, of_gn;
  sweep_slots(0, args.dim, [&](int64_t i, auto lanes, auto slot) {
    // Beyond the row g is 0.
    const F g = read<T>(args.dy, begin + i, lanes) * read<F32>(weight, i, lanes);
    of_g.slots[slot.value] += g;
    of_gn.slots[slot.value] += g * (read<T>(args.x, begin + i, lanes) - mean);
  });
  const float mean_g = of_g.total() / dim, mean_gn = of_gn.total() * rstd / dim;
  sweep(0, args.dim, [&](int64_t i, auto lanes) {
    const F n = (read<T>(args.x, begin + i, lanes) - mean) * rstd;
    const F dy = read<T>(args.dy, begin + i, lanes);
    F dx = rstd * (dy * read<F32>(weight, i, lanes) - mean_g - n * mean_gn);
    if (args.d_residual != nullptr) dx += read<T>(args.d_residual, begin + i, lanes);
    if (dweight != nullptr) write<F32>(dweight, i, read<F32>(dweight, i, lanes) + dy * n, lanes);
    if (dbias != nullptr) write<F32>(dbias, i, read<F32>(dbias, i, lanes) + dy, lanes);
    write<T>(args.dx, begin + i, dx, lanes);
  });
}

}  // namespace

namespace SNUG_ISA {

void layer_norm_forward_rows(const LayerNormForward& shared, const float* weight, const float* bias,
                             int64_t begin, int64_t end) {
  with_type(shared.type, [&](auto type) {
    const auto args = shared;
    for (int64_t row = begin; row < end; ++row)
      forward_row<decltype(type)>(args, weight, bias, row);
  });
}

void layer_norm_backward_rows(const LayerNormBackward& shared, const float* weight, float* dweight,
                              float* dbias, int64_t begin, int64_t end) {
  with_type(shared.type, [&](auto type) {
    const auto args = shared;
    for (int64_t row = begin; row < end; ++row)
      backward_row<decltype(type)>(args, weight, dweight, dbias, row);
  });
}

}  // namespace SNUG_ISA
}  // namespace snug::kernels::cpu
