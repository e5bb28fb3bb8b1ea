// Adafactor on rows of one tensor; see core/kernels/optimizers.h.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/cpu/simd/math.h"
#include "core/kernels/cpu/simd/weights.h"

namespace snug::kernels::cpu {
namespace {

template <class G>
double moments_row(const AdafactorTensor& tensor, const AdafactorFactors& factors, float* col_sums,
                   int64_t row, auto param) {
  using P = decltype(param);
  const auto t = tensor;
  const float grad_scale = factors.grad_scale;
  const int64_t start = row * t.cols;
  Sums grads, weights;
  sweep_slots(0, t.cols, [&](int64_t c, auto lanes, auto slot) {
    constexpr int kSlot = decltype(slot)::value;
    const F g = read<G>(t.grad, start + c, lanes) * grad_scale;
    const F p = read_weight<P>(t, start + c, lanes);
    grads.slots[kSlot] += g * g;
    weights.slots[kSlot] += p * p;
    write<F32>(col_sums, c, read<F32>(col_sums, c, lanes) + g * g, lanes);
  });
  if (t.row_var != nullptr) {
    const float mean = grads.total() / static_cast<float>(t.cols);
    t.row_var[row] += (mean - t.row_var[row]) * factors.new_share;
  }
  return weights.total();
}

// The second moment's factor that a row's elements share.
SNUG_INLINE float row_factor(const AdafactorTensor& t, const AdafactorFactors& f, int64_t row) {
  return t.row_var != nullptr ? t.row_var[row] * f.row_scale : 1.0f;
}

template <class Lanes>
SNUG_INLINE F second_moment(const AdafactorTensor& t, float factor, float smallest, int64_t c,
                            Lanes lanes) {
  return at_least(read<F32>(t.col_var, c, lanes) * factor, smallest);
}

template <class G>
double update_norm_row(const AdafactorTensor& tensor, const AdafactorFactors& factors,
                       int64_t row) {
  const auto t = tensor;
  const auto f = factors;
  const int64_t start = row * t.cols;
  const float factor = row_factor(t, f, row);
  Sums squares;
  sweep_slots(0, t.cols, [&](int64_t c, auto lanes, auto slot) {
    const F g = read<G>(t.grad, start + c, lanes) * f.grad_scale;
    squares.slots[decltype(slot)::value] += g * g / second_moment(t, factor, f.smallest, c, lanes);
  });
  return squares.total();
}

template <class P, class G>
void update_row(const AdafactorTensor& tensor, const AdafactorFactors& factors, int64_t row) {
  const auto t = tensor;
  const auto f = factors;
  const int64_t start = row * t.cols;
  const float factor = row_factor(t, f, row);
  sweep(0, t.cols, [&](int64_t c, auto lanes) {
    const int64_t i = start + c;
    const F g = read<G>(t.grad, i, lanes) * f.grad_scale;
    const F root = square_root(second_moment(t, factor, f.smallest, c, lanes));
    const F p = read_weight<P>(t, i, lanes) * f.decay - f.step_size * (g / root);
    const U random = f.stochastic ? random_bits(f.random_key, i) : U{};
    write_weight<P>(t, i, p, lanes, f.stochastic, random);
  });
}

}  // namespace

namespace SNUG_ISA {

double adafactor_moments_rows(const AdafactorTensor& tensor, const AdafactorFactors& factors,
                              float* col_sums, int64_t begin, int64_t end) {
  double sum = 0;
  with_type(tensor.param_type, [&](auto p) {
    with_type(tensor.grad_type, [&](auto g) {
      for (int64_t row = begin; row < end; ++row)
        sum += moments_row<decltype(g)>(tensor, factors, col_sums, row, p);
    });
  });
  return sum;
}

double adafactor_update_norm_rows(const AdafactorTensor& tensor, const AdafactorFactors& factors,
                                  int64_t begin, int64_t end) {
  double sum = 0;
  with_type(tensor.grad_type, [&](auto g) {
    for (int64_t row = begin; row < end; ++row)
      sum += update_norm_row<decltype(g)>(tensor, factors, row);
  });
  return sum;
}

void adafactor_update_rows(const AdafactorTensor& tensor, const AdafactorFactors& factors,
                           int64_t begin, int64_t end) {
  with_type(tensor.param_type, [&](auto p) {
    with_type(tensor.grad_type, [&](auto g) {
      for (int64_t row = begin; row < end; ++row)
        update_row<decltype(p), decltype(g)>(tensor, factors, row);
    });
  });
}

}  // namespace SNUG_ISA
}  // namespace snug::kernels::cpu
