// One thread a feature of a row. Backward runs a fixed number of blocks over all rows, each over
// neighbouring ones, with its share of the weight's gradient in registers, so that the order of
// that sum depends neither on the device nor on chance.
// Bytes an element of y, T those of its type, without what caches serve (neighbouring rows):
//   forward_row: reads T (with gates 3 T), writes T
//   backward_rows: reads 2 T (with gates 4 T), writes T (with gates 3 T)
//   add_shares: reads 1024 a tap and feature, writes T
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/gradient_shares.cuh"
#include "core/kernels/cuda/operators.h"

namespace snug::kernels::cuda {
namespace {

constexpr int kThreads = 128;

template <class T, class W>
struct Convolution {
  ConvForm form;
  const T* x;
  const int32_t* positions;
  const W* weight;
  const W* bias;
  int64_t rows;
  int64_t features;
  int taps;

  __device__ int parts() const { return form == ConvForm::Gates ? 3 : 1; }
  // The feature of one of the parts of a row of the input.
  __device__ float part(int64_t row, int which, int64_t feature) const {
    return to_float(x[(parts() * row + which) * features + feature]);
  }
  // u
  __device__ float convolved(int64_t row, int64_t feature) const {
    const float first = part(row, 0, feature);
    return form == ConvForm::Gates ? first * part(row, 2, feature) : first;
  }
  // The tap that reads `before` rows back.
  __device__ float tap(int64_t feature, int before) const {
    return to_float(weight[feature * taps + taps - 1 - before]);
  }
  __device__ bool reads(int64_t row, int before) const {
    return before < taps && before <= positions[row] && before <= row;
  }
  // s
  __device__ float sum(int64_t row, int64_t feature) const {
    float sum = bias != nullptr ? to_float(bias[feature]) : 0.f;
    for (int j = 0; reads(row, j); ++j) sum += tap(feature, j) * convolved(row - j, feature);
    return sum;
  }
  // The gradient of s.
  __device__ float gradient_of_sum(const T* dy, int64_t row, int64_t feature) const {
    const float d = to_float(dy[row * features + feature]);
    if (form == ConvForm::Gates) return d * part(row, 1, feature);
    const float s = sum(row, feature);
    return d * logistic(s) * (1.f + s * logistic(-s));
  }
};

template <class T, class W>
__global__ void __launch_bounds__(kThreads) forward_row(Convolution<T, W> a, T* y) {
  const int64_t row = blockIdx.x, feature = blockIdx.y * int64_t{kThreads} + threadIdx.x;
  if (feature >= a.features) return;
  const float s = a.sum(row, feature);
  y[row * a.features + feature] =
      from_float<T>(a.form == ConvForm::Gates ? a.part(row, 1, feature) * s : s / (1.f + expf(-s)));
}

template <class T, class W>
struct Backward {
  Convolution<T, W> of;
  const T* dy;
  T* dx;
  float* dweight;  // (kBackwardBlocks, F, K), or null
  float* dbias;    // (kBackwardBlocks, F), or null
};

// The gradient of u, which the sums of the next rows read too.
template <class T, class W>
__device__ float gradient_of_convolved(const Backward<T, W>& a, int64_t row, int64_t feature) {
  float sum = 0;
  for (int j = 0; j < a.of.taps && row + j < a.of.rows && a.of.reads(row + j, j); ++j)
    sum += a.of.tap(feature, j) * a.of.gradient_of_sum(a.dy, row + j, feature);
  return sum;
}

template <class T, class W>
__device__ void backward_row(const Backward<T, W>& a, int64_t row, int64_t feature, float* taps,
                             float& bias) {
  const float du = gradient_of_convolved(a, row, feature);
  T* dx = a.dx + a.of.parts() * row * a.of.features + feature;
  if (a.of.form == ConvForm::Gates) {
    const float dy = to_float(a.dy[row * a.of.features + feature]);
    dx[0] = from_float<T>(du * a.of.part(row, 2, feature));
    dx[a.of.features] = from_float<T>(dy * a.of.sum(row, feature));
    dx[2 * a.of.features] = from_float<T>(du * a.of.part(row, 0, feature));
  } else {
    dx[0] = from_float<T>(du);
  }
  const float ds = a.of.gradient_of_sum(a.dy, row, feature);
  bias += ds;
#pragma unroll
  for (int j = 0; j < kMostTaps; ++j)
    if (a.of.reads(row, j)) taps[j] += ds * a.of.convolved(row - j, feature);
}

template <class T, class W>
__global__ void __launch_bounds__(kThreads) backward_rows(Backward<T, W> a) {
  const int64_t feature = blockIdx.y * int64_t{kThreads} + threadIdx.x;
  if (feature >= a.of.features) return;
  const int64_t step = (a.of.rows + gridDim.x - 1) / gridDim.x, begin = blockIdx.x * step;
  const int64_t end = begin + step < a.of.rows ? begin + step : a.of.rows;
  float taps[kMostTaps] = {}, bias = 0;
  for (int64_t row = begin; row < end; ++row) backward_row(a, row, feature, taps, bias);
  const int64_t at = blockIdx.x * a.of.features + feature;
  if (a.dbias != nullptr) a.dbias[at] = bias;
  if (a.dweight == nullptr) return;
#pragma unroll
  for (int j = 0; j < kMostTaps; ++j)
    if (j < a.of.taps) a.dweight[at * a.of.taps + a.of.taps - 1 - j] = taps[j];
}

template <class T, class W>
Convolution<T, W> of(const ShortConvForward& args) {
  SNUG_CHECK(args.taps > 0 && args.taps <= kMostTaps, "a short convolution with {} taps",
             args.taps);
  return {args.form,
          static_cast<const T*>(args.x),
          args.positions,
          static_cast<const W*>(args.weight),
          static_cast<const W*>(args.bias),
          args.rows,
          args.features,
          static_cast<int>(args.taps)};
}

template <class Body>
void with_types(const ShortConvForward& args, const Body& body) {
  with_type(args.type, [&](auto type) {
    with_type(args.weight_type, [&](auto weight_type) { body(type, weight_type); });
  });
}

}  // namespace

void short_conv_forward(const ShortConvForward& args, cudaStream_t stream) {
  if (args.rows == 0) return;
  with_types(args, [&](auto type, auto weight_type) {
    using T = decltype(type);
    using W = decltype(weight_type);
    launch("short_conv_forward", forward_row<T, W>,
           Grid{args.rows, blocks_for(args.features, kThreads)}, kThreads, 0, stream,
           of<T, W>(args), static_cast<T*>(args.y));
  });
}

int64_t short_conv_backward_workspace_bytes(int64_t features, int64_t sums) {
  return 4 * kBackwardBlocks * features * sums;
}

void short_conv_backward(const ShortConvBackward& args, void* workspace, cudaStream_t stream) {
  const ShortConvForward& forward = args.forward;
  const int64_t weights = forward.features * forward.taps;
  auto* floats = static_cast<float*>(workspace);
  float* dweight = args.dweight.data != nullptr ? floats : nullptr;
  float* behind = floats + (dweight != nullptr ? kBackwardBlocks * weights : 0);
  float* dbias = args.dbias.data != nullptr ? behind : nullptr;
  with_types(forward, [&](auto type, auto weight_type) {
    using T = decltype(type);
    using W = decltype(weight_type);
    const Backward<T, W> a = {of<T, W>(forward), static_cast<const T*>(args.dy),
                              static_cast<T*>(args.dx), dweight, dbias};
    launch("short_conv_backward/backward_rows", backward_rows<T, W>,
           Grid{kBackwardBlocks, blocks_for(forward.features, kThreads)}, kThreads, 0, stream, a);
  });
  add_up("short_conv_backward/add_shares", {dweight, args.dweight}, {}, weights, stream);
  add_up("short_conv_backward/add_shares", {dbias, args.dbias}, {}, forward.features, stream);
}

}  // namespace snug::kernels::cuda
