// Loss and gradient of one row of logits; see core/kernels/cross_entropy.h.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/cpu/simd/math.h"
#include "core/kernels/divergence.h"

namespace snug::kernels::cpu {
namespace {

// Stretches of at least 8 KiB, at most kMaxStretches of them.
constexpr int64_t kMinStretch = 2048;

SNUG_INLINE float max_of_lanes(F v) {
  float largest = v[0];
  for (int k = 1; k < kLanes; ++k) largest = v[k] > largest ? v[k] : largest;
  return largest;
}

// A NaN may or may not come through; it reaches the loss by its exponential.
SNUG_INLINE float max_of(const float* x, int64_t begin, int64_t end) {
  const F lowest = broadcast(-__builtin_inff());
  F largest[kSlots] = {lowest, lowest, lowest, lowest};
  sweep_slots(begin, end, [&](int64_t i, auto lanes, auto slot) {
    const F v = fill_beyond(read<F32>(x, i, lanes), lowest, lanes);
    F& most = largest[slot.value];
    most = most > v ? most : v;
  });
  F most = largest[0];
  for (int k = 1; k < kSlots; ++k) most = most > largest[k] ? most : largest[k];
  return max_of_lanes(most);
}

struct RowSums {
  float maximum = 0;
  double exponentials = 0;  // of x - maximum
  double logits = 0;        // for label smoothing
};

// Sum of exp(x - shift); with kKeep these also replace x.
template <bool kKeep>
SNUG_INLINE float exponentials_of(float* x, int64_t begin, int64_t end, float shift) {
  Sums sums;
  sweep_slots(begin, end, [&](int64_t i, auto lanes, auto slot) {
    const F e = exp_any(read<F32>(x, i, lanes) - shift);
    if constexpr (kKeep) write<F32>(x, i, e, lanes);
    sums.slots[slot.value] += fill_beyond(e, F{}, lanes);
  });
  return sums.total();
}

float sum_of(const float* x, int64_t begin, int64_t end) {
  Sums sums;
  sweep_slots(begin, end, [&](int64_t i, auto lanes, auto slot) {
    sums.slots[slot.value] += read<F32>(x, i, lanes);
  });
  return sums.total();
}

// A stretch of only -infinity has nothing to subtract.
SNUG_INLINE float finite_shift(float maximum) {
  return maximum == -__builtin_inff() ? 0.f : maximum;
}

// `maxima`: the shift of each stretch.
RowSums sum_row(const CrossEntropy& args, float* x, int64_t stretch, float* maxima) {
  double partial[kMaxStretches];
  RowSums sums;
  sums.maximum = -__builtin_inff();
  int64_t n = 0;
  for (int64_t begin = 0; begin < args.vocabulary; begin += stretch, ++n) {
    const int64_t left = args.vocabulary - begin, end = begin + (left < stretch ? left : stretch);
    const float largest = max_of(x, begin, end);
    if (args.label_smoothing != 0) sums.logits += sum_of(x, begin, end);
    maxima[n] = finite_shift(largest);
    partial[n] = args.need_gradient ? exponentials_of<true>(x, begin, end, maxima[n])
                                    : exponentials_of<false>(x, begin, end, maxima[n]);
    if (!(largest <= sums.maximum)) sums.maximum = largest;
  }
  const double shift = finite_shift(sums.maximum);
  for (int64_t k = 0; k < n; ++k) {
    sums.exponentials += partial[k] * __builtin_exp(double{maxima[k]} - shift);
  }
  return sums;
}

// softmax * factor - share, from the exponentials of each stretch.
template <class T>
SNUG_INLINE void write_gradient(const CrossEntropy& args, const float* x, void* out,
                                int64_t stretch, const float* maxima, double lse, double factor,
                                float share) {
  int64_t n = 0;
  for (int64_t begin = 0; begin < args.vocabulary; begin += stretch, ++n) {
    const int64_t left = args.vocabulary - begin, end = begin + (left < stretch ? left : stretch);
    const float f = static_cast<float>(factor * __builtin_exp(double{maxima[n]} - lse));
    sweep(begin, end, [&](int64_t i, auto lanes) {
      write<T>(out, i, read<F32>(x, i, lanes) * f - share, lanes);
    });
  }
}

template <class T>
SNUG_INLINE void write_zeros(void* out, int64_t count) {
  sweep(0, count, [&](int64_t i, auto lanes) { write<T>(out, i, F{}, lanes); });
}

struct Output {
  void* row;
  Scalar type;
};

Output output_of(const CrossEntropy& args, float* x, int64_t row) {
  if (args.gradient == nullptr) return {x, Scalar::F32};
  const int64_t offset = row * args.gradient_stride * scalar_bytes(args.gradient_type);
  return {static_cast<char*>(args.gradient) + offset, args.gradient_type};
}

int64_t stretch_of(const CrossEntropy& args) {
  const int64_t even = (args.vocabulary + kMaxStretches - 1) / kMaxStretches;
  return even > kMinStretch ? even : kMinStretch;
}

// A row's divergence from its teacher.
struct Divergence {
  double value = 0;
  double slope_of_others = 0;
  double mean_slope = 0;
};

const float* teacher_of(const CrossEntropy& args, int64_t row) {
  return args.teacher + row * 2 * args.top_k;
}

// The teacher's probability of its token i.
double teachers_probability(const CrossEntropy& args, int64_t row, int64_t i) {
  return __builtin_exp(double{teacher_of(args, row)[args.top_k + i]});
}

// This model's.
double probability(const CrossEntropy& args, int64_t row, int64_t i,
                   const CrossEntropyPartSums& whole) {
  const double shift = finite_shift(static_cast<float>(whole.maximum));
  if (teacher_of(args, row)[i] < 0) return 0;
  return __builtin_exp(args.at_teachers[row * args.top_k + i] - shift) / whole.exponentials;
}

Divergence divergence_of(const CrossEntropy& args, int64_t row, const CrossEntropyPartSums& whole) {
  Divergence sum;
  if (args.top_k == 0) return sum;
  double teachers = 0, own = 0;
  const auto add = [&](const DivergenceTerm<double>& term) {
    sum.value += term.value;
    sum.mean_slope += term.weighted_slope;
  };
  for (int64_t i = 0; i < args.top_k; ++i) {
    if (teacher_of(args, row)[i] < 0) continue;
    const double p = teachers_probability(args, row, i);
    const double q = probability(args, row, i, whole);
    teachers += p;
    own += q;
    add(divergence_term<double>(p, q, args.beta));
  }
  const double others = all_others(own);
  const auto term = divergence_term<double>(all_others(teachers), others, args.beta);
  add(term);
  sum.slope_of_others = term.weighted_slope / others;
  return sum;
}

// The gradient of the teacher's tokens, over that which they have as others have theirs.
template <class T>
void write_teachers(const CrossEntropy& args, int64_t row, void* out,
                    const CrossEntropyPartSums& whole, double scale, double ce_factor,
                    double onehot, double smooth_share, double mean_slope) {
  for (int64_t i = 0; i < args.top_k; ++i) {
    const auto id = static_cast<int64_t>(teacher_of(args, row)[i]);
    if (id < 0 || !args.has_column(id)) continue;
    const double p = teachers_probability(args, row, i);
    const double q = probability(args, row, i, whole);
    double gradient = q * (ce_factor - scale * mean_slope) +
                      scale * divergence_term<double>(p, q, args.beta).weighted_slope -
                      smooth_share;
    if (id == args.targets[row]) gradient -= onehot;
    store_one(T{}, static_cast<typename T::storage*>(out) + (id - args.first),
              static_cast<float>(gradient));
  }
}

// Loss of a row whose sums over all columns are known, and the gradient of the columns at hand.
double finish_row(const CrossEntropy& args, int64_t row, float* x,
                  const CrossEntropyPartSums& whole, const float* maxima) {
  const int64_t target = args.targets[row];
  const double smoothing = args.label_smoothing, z = args.z_loss;
  const double smooth_share = smoothing / static_cast<double>(args.all_columns());
  const double lse =
      __builtin_log(whole.exponentials) + finite_shift(static_cast<float>(whole.maximum));
  double loss = lse - (1 - smoothing) * whole.target + z * lse * lse;
  if (smoothing != 0) loss -= smooth_share * whole.logits;
  if (args.row_loss != nullptr) args.row_loss[row] = static_cast<float>(loss);
  const Divergence divergence = divergence_of(args, row, whole);
  loss = args.target_weight * loss + divergence.value;
  if (!args.need_gradient) return loss;

  // The target's element is computed apart, before its exponential is overwritten: where softmax is
  // near 1 the difference must be rounded once, to the output's type.
  const Output out = output_of(args, x, row);
  const float scale = args.row_scale == nullptr ? args.scale : args.scale * args.row_scale[row];
  const double weight = scale * args.target_weight, onehot = weight * (1 - smoothing);
  const double of_softmax = weight * (1 + 2 * z * lse), share = weight * smooth_share;
  const double factor = of_softmax + scale * (divergence.slope_of_others - divergence.mean_slope);
  const double at_target = factor * __builtin_exp(whole.target - lse) - onehot - share;
  with_type(out.type, [&](auto t) {
    using T = decltype(t);
    write_gradient<T>(args, x, out.row, stretch_of(args), maxima, lse, factor,
                      static_cast<float>(share));
    if (args.has_column(target))
      store_one(T{}, static_cast<typename T::storage*>(out.row) + (target - args.first),
                static_cast<float>(at_target));
    write_teachers<T>(args, row, out.row, whole, scale, of_softmax, onehot, share,
                      divergence.mean_slope);
  });
  return loss;
}

double ignore_row(const CrossEntropy& args, int64_t row, float* x) {
  if (args.row_loss != nullptr) args.row_loss[row] = 0;
  if (!args.need_gradient) return 0;
  const Output out = output_of(args, x, row);
  with_type(out.type, [&](auto t) { write_zeros<decltype(t)>(out.row, args.vocabulary); });
  return 0;
}

}  // namespace

namespace SNUG_ISA {

CrossEntropyPartSums cross_entropy_part_row(const CrossEntropy& args, int64_t row, float* maxima) {
  const int64_t target = args.targets[row];
  if (target == args.ignore_index) return {};
  float* x = args.logits + row * args.logits_stride;
  const double target_logit = args.has_column(target) ? x[target - args.first] : 0.0;
  const RowSums sums = sum_row(args, x, stretch_of(args), maxima);
  return {sums.maximum, sums.exponentials, sums.logits, target_logit};
}

double cross_entropy_whole_row(const CrossEntropy& args, int64_t row,
                               const CrossEntropyPartSums& whole, const float* maxima) {
  float* x = args.logits + row * args.logits_stride;
  if (args.targets[row] == args.ignore_index) return ignore_row(args, row, x);
  return finish_row(args, row, x, whole, maxima);
}

double cross_entropy_row(const CrossEntropy& args, int64_t row) {
  float maxima[kMaxStretches];
  const CrossEntropyPartSums sums = cross_entropy_part_row(args, row, maxima);
  return cross_entropy_whole_row(args, row, sums, maxima);
}

}  // namespace SNUG_ISA
}  // namespace snug::kernels::cpu
