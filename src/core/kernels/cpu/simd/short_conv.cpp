// Rows of a short convolution; see core/kernels/short_conv.h. A vector of features looks at the few
// rows before and after its own, which the first-level cache still has.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/cpu/simd/loops.h"
#include "core/kernels/cpu/simd/math.h"

namespace snug::kernels::cpu {
namespace {

// A convolution's arguments, with its form and element type known to the compiler.
template <class T, ConvForm form>
struct Convolution {
  ShortConvForward args;
  ShortConvWeights weights;
};

template <class T, ConvForm form>
constexpr int64_t kParts = form == ConvForm::Gates ? 3 : 1;

// The features from i on of one of the parts of a row of the input.
template <class T, ConvForm form, class Lanes>
SNUG_INLINE F part(const Convolution<T, form>& c, int64_t row, int64_t which, int64_t i,
                   Lanes lanes) {
  return read<T>(c.args.x, (kParts<T, form> * row + which) * c.args.features + i, lanes);
}

// u
template <class T, ConvForm form, class Lanes>
SNUG_INLINE F convolved(const Convolution<T, form>& c, int64_t row, int64_t i, Lanes lanes) {
  if constexpr (form == ConvForm::Silu) return part(c, row, 0, i, lanes);
  return part(c, row, 0, i, lanes) * part(c, row, 2, i, lanes);
}

// How many rows a sum reads: its own and those before it in its document.
SNUG_INLINE int64_t rows_read(const ShortConvForward& args, int64_t row) {
  const int64_t in_document = int64_t{args.positions[row]} + 1;
  const int64_t known = in_document < row + 1 ? in_document : row + 1;
  return known < args.taps ? known : args.taps;
}

// How many sums read a row: its own and those after it in its document.
SNUG_INLINE int64_t rows_reading(const ShortConvForward& args, int64_t row) {
  int64_t count = 1;
  while (count < args.taps && row + count < args.rows && args.positions[row + count] >= count)
    ++count;
  return count;
}

// s
template <class T, ConvForm form, class Lanes>
SNUG_INLINE F sum_of_taps(const Convolution<T, form>& c, int64_t row, int64_t i, Lanes lanes) {
  F sum = c.weights.bias != nullptr ? read<F32>(c.weights.bias, i, lanes) : F{};
  const int64_t count = rows_read(c.args, row);
  for (int64_t j = 0; j < count; ++j)
    sum +=
        read<F32>(c.weights.taps, j * c.args.features + i, lanes) * convolved(c, row - j, i, lanes);
  return sum;
}

// The gradient of s.
template <class T, ConvForm form, class Lanes>
SNUG_INLINE F gradient_of_sum(const Convolution<T, form>& c, const void* dy, int64_t row, int64_t i,
                              Lanes lanes) {
  const F d = read<T>(dy, row * c.args.features + i, lanes);
  if constexpr (form == ConvForm::Gates) return d * part(c, row, 1, i, lanes);
  return d * Silu::both(sum_of_taps(c, row, i, lanes)).slope;
}

// The gradient of u, which the sums of `count` rows read.
template <class T, ConvForm form, class Lanes>
SNUG_INLINE F gradient_of_convolved(const Convolution<T, form>& c, const void* dy, int64_t row,
                                    int64_t count, int64_t i, Lanes lanes) {
  F sum{};
  for (int64_t j = 0; j < count; ++j)
    sum += read<F32>(c.weights.taps, j * c.args.features + i, lanes) *
           gradient_of_sum(c, dy, row + j, i, lanes);
  return sum;
}

template <class Lanes>
SNUG_INLINE void add_to(float* sums, int64_t at, F value, Lanes lanes) {
  write<F32>(sums, at, read<F32>(sums, at, lanes) + value, lanes);
}

// `shares`: of the weight (K, F), then of the bias (F). `ds`: the gradient of s.
template <class T, ConvForm form, class Lanes>
SNUG_INLINE void add_shares(const Convolution<T, form>& c, float* shares, F ds, int64_t row,
                            int64_t i, Lanes lanes) {
  const int64_t features = c.args.features, count = rows_read(c.args, row);
  for (int64_t j = 0; j < count; ++j)
    add_to(shares, j * features + i, ds * convolved(c, row - j, i, lanes), lanes);
  add_to(shares, c.args.taps * features + i, ds, lanes);
}

template <class T, ConvForm form>
SNUG_INLINE void forward_row(const Convolution<T, form>& c, int64_t row) {
  sweep(0, c.args.features, [&](int64_t i, auto lanes) {
    const F s = sum_of_taps(c, row, i, lanes);
    F y;
    if constexpr (form == ConvForm::Gates)
      y = part(c, row, 1, i, lanes) * s;
    else
      y = Silu::value(s);
    write<T>(c.args.y, row * c.args.features + i, y, lanes);
  });
}

template <class T, ConvForm form>
SNUG_INLINE void backward_row(const Convolution<T, form>& c, const ShortConvBackward& args,
                              float* shares, int64_t row) {
  const int64_t features = c.args.features, out = kParts<T, form> * row * features;
  const int64_t count = rows_reading(c.args, row);
  sweep(0, features, [&](int64_t i, auto lanes) {
    const F du = gradient_of_convolved(c, args.dy, row, count, i, lanes);
    if constexpr (form == ConvForm::Gates) {
      const F dy = read<T>(args.dy, row * features + i, lanes);
      write<T>(args.dx, out + i, du * part(c, row, 2, i, lanes), lanes);
      write<T>(args.dx, out + features + i, dy * sum_of_taps(c, row, i, lanes), lanes);
      write<T>(args.dx, out + 2 * features + i, du * part(c, row, 0, i, lanes), lanes);
    } else {
      write<T>(args.dx, out + i, du, lanes);
    }
    if (shares != nullptr)
      add_shares(c, shares, gradient_of_sum(c, args.dy, row, i, lanes), row, i, lanes);
  });
}

// body(Convolution) of the type and form that the arguments name.
template <class Body>
SNUG_INLINE void with_form(const ShortConvForward& args, const ShortConvWeights& weights,
                           const Body& body) {
  with_type(args.type, [&](auto type) {
    if (args.form == ConvForm::Gates)
      body(Convolution<decltype(type), ConvForm::Gates>{args, weights});
    else
      body(Convolution<decltype(type), ConvForm::Silu>{args, weights});
  });
}

}  // namespace

namespace SNUG_ISA {

void short_conv_forward_rows(const ShortConvForward& args, const ShortConvWeights& weights,
                             int64_t begin, int64_t end) {
  with_form(args, weights, [&](auto c) {
    for (int64_t row = begin; row < end; ++row) forward_row(c, row);
  });
}

void short_conv_backward_rows(const ShortConvBackward& shared, const ShortConvWeights& weights,
                              float* shares, int64_t begin, int64_t end) {
  with_form(shared.forward, weights, [&](auto c) {
    const auto args = shared;
    for (int64_t row = begin; row < end; ++row) backward_row(c, args, shares, row);
  });
}

}  // namespace SNUG_ISA
}  // namespace snug::kernels::cpu
