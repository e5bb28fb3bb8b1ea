// One thread an element, four rounds a block: the arithmetic hides behind the memory. An ungated
// activation is a gated one of a single row without `up`.
// Bytes an element, T those of its type:
//   forward: reads T (gated 2 T), writes T
//   backward: reads 2 T (gated 3 T), writes T (gated 2 T), and T with y
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/operators.h"

#include "core/kernels/cuda/elements.cuh"

namespace snug::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRounds = 4;

struct ValueAndSlope {
  float value, slope;
};

__device__ ValueAndSlope relu(float x) {
  return {x < 0.f ? 0.f : x, x != x ? x : x > 0.f ? 1.f : 0.f};
}

__device__ ValueAndSlope relu_squared(float x) {
  const float bounded = x < 0.f ? 0.f : x;
  return {bounded * bounded, 2.f * bounded};
}

__device__ ValueAndSlope sigmoid(float x) {
  const float s = logistic(x);
  return {s, s * logistic(-x)};
}

// s = logistic(x); 1 - s is logistic(-x), without that difference's cancellation.
__device__ ValueAndSlope silu(float x) {
  const float s = logistic(x);
  return {x / (1.f + expf(-x)), s * (1.f + x * logistic(-x))};
}

// Beyond 30 the logistic is 0 or 1; bounding x there keeps its cube finite. NaN passes.
__device__ ValueAndSlope gelu_tanh(float x) {
  const float b = x > 30.f ? 30.f : x < -30.f ? -30.f : x;
  const float twice_u = 1.5957691216f * (b + 0.044715f * b * b * b);
  const float inner = 1.5957691216f * (1.f + 0.134145f * b * b);
  const float s = logistic(twice_u);
  return {x / (1.f + expf(-twice_u)), s * (1.f + b * inner * logistic(-twice_u))};
}

__device__ ValueAndSlope gelu_erf(float x) {
  const float share = 0.5f * erfcf(-x * 0.70710678f);
  return {x * share, share + x * expf(-0.5f * x * x) * 0.39894228f};
}

__device__ ValueAndSlope evaluate(Activation activation, float x) {
  switch (activation) {
    case Activation::Relu:
      return relu(x);
    case Activation::Gelu:
      return gelu_erf(x);
    case Activation::GeluTanh:
      return gelu_tanh(x);
    case Activation::ReluSquared:
      return relu_squared(x);
    case Activation::Sigmoid:
      return sigmoid(x);
    default:
      return silu(x);
  }
}

// y = value * up; of dy the gate's gradient is dy * up * slope, up's dy * passed.
struct GateTerms {
  float value, slope, up, passed;
};

__device__ GateTerms clamped(GateClamp clamp, float gate, float up) {
  const float limit = clamp.limit;
  const float g = gate > limit ? limit : gate;
  const float u = up > limit ? limit : up < -limit ? -limit : up;
  const float s = logistic(clamp.alpha * g);
  const float slope = s * (1.f + clamp.alpha * g * logistic(-clamp.alpha * g));
  const bool in_range = !(up > limit) && !(up < -limit);
  return {g * s, gate > limit ? 0.f : slope, u + 1.f, in_range ? g * s : 0.f};
}

__device__ GateTerms terms(Activation activation, GateClamp clamp, float gate, float up) {
  if (clamp.limit > 0) return clamped(clamp, gate, up);
  const ValueAndSlope both = evaluate(activation, gate);
  return {both.value, both.slope, up, both.value};
}

template <class T>
struct Gated {
  Activation activation;
  int64_t features;
  int64_t input_stride;
  int64_t output_stride;
  const T* gate;
  const T* up;  // null: 1
  const T* dy;
  T* y;
  T* dgate;
  T* dup;
  GateClamp clamp;
};

template <class T>
__global__ void __launch_bounds__(kThreads) forward(Gated<T> a) {
  const int64_t in = blockIdx.x * a.input_stride, out = blockIdx.x * a.output_stride;
  const int64_t first = blockIdx.y * int64_t{kThreads * kRounds} + threadIdx.x;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t i = first + round * kThreads;
    if (i >= a.features) return;
    const float up = a.up != nullptr ? to_float(a.up[in + i]) : 1.f;
    const GateTerms gate = terms(a.activation, a.clamp, to_float(a.gate[in + i]), up);
    a.y[out + i] = from_float<T>(gate.value * gate.up);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) backward(Gated<T> a) {
  const int64_t in = blockIdx.x * a.input_stride, out = blockIdx.x * a.output_stride;
  const int64_t first = blockIdx.y * int64_t{kThreads * kRounds} + threadIdx.x;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t i = first + round * kThreads;
    if (i >= a.features) return;
    const float up = a.up != nullptr ? to_float(a.up[in + i]) : 1.f;
    const float dy = to_float(a.dy[out + i]);
    const GateTerms gate = terms(a.activation, a.clamp, to_float(a.gate[in + i]), up);
    a.dgate[in + i] = from_float<T>(dy * gate.up * gate.slope);
    if (a.dup != nullptr) a.dup[in + i] = from_float<T>(dy * gate.passed);
    if (a.y != nullptr) a.y[out + i] = from_float<T>(gate.value * gate.up);
  }
}

// Rows go to the grid's x, which may be long; columns to y.
Grid grid_of(int64_t rows, int64_t features) {
  return {rows, blocks_for(features, kThreads * kRounds)};
}

// A flat array as rows that the grid can hold, the last one shorter.
constexpr int64_t kFlatRow = int64_t{1} << 20;

template <class Launch>
void over_flat_rows(int64_t count, const Launch& launch) {
  const int64_t whole = count / kFlatRow * kFlatRow;
  if (whole > 0) launch(int64_t{0}, whole / kFlatRow, kFlatRow);
  if (count > whole) launch(whole, int64_t{1}, count - whole);
}

}  // namespace

void activation_forward(const ActivationForward& args, cudaStream_t stream) {
  with_type(args.type, [&](auto type) {
    using T = decltype(type);
    over_flat_rows(args.count, [&](int64_t start, int64_t rows, int64_t features) {
      Gated<T> a = {args.activation, features, features, features};
      a.gate = static_cast<const T*>(args.x) + start;
      a.y = static_cast<T*>(args.y) + start;
      launch("activation_forward", forward<T>, grid_of(rows, features), kThreads, 0, stream, a);
    });
  });
}

void activation_backward(const ActivationBackward& args, cudaStream_t stream) {
  with_type(args.type, [&](auto type) {
    using T = decltype(type);
    over_flat_rows(args.count, [&](int64_t start, int64_t rows, int64_t features) {
      Gated<T> a = {args.activation, features, features, features};
      a.gate = static_cast<const T*>(args.x) + start;
      a.dy = static_cast<const T*>(args.dy) + start;
      a.dgate = static_cast<T*>(args.dx) + start;
      if (args.y != nullptr) a.y = static_cast<T*>(args.y) + start;
      launch("activation_backward", backward<T>, grid_of(rows, features), kThreads, 0, stream, a);
    });
  });
}

void gated_forward(const GatedForward& args, cudaStream_t stream) {
  if (args.rows == 0 || args.features == 0) return;
  with_type(args.type, [&](auto type) {
    using T = decltype(type);
    Gated<T> a = {args.activation, args.features,
                  args.input_stride != 0 ? args.input_stride : args.features,
                  args.output_stride != 0 ? args.output_stride : args.features};
    a.gate = static_cast<const T*>(args.gate);
    a.up = static_cast<const T*>(args.up);
    a.clamp = args.clamp;
    a.y = static_cast<T*>(args.y);
    launch("gated_forward", forward<T>, grid_of(args.rows, args.features), kThreads, 0, stream, a);
  });
}

void gated_backward(const GatedBackward& args, cudaStream_t stream) {
  if (args.rows == 0 || args.features == 0) return;
  with_type(args.type, [&](auto type) {
    using T = decltype(type);
    Gated<T> a = {args.activation, args.features,
                  args.input_stride != 0 ? args.input_stride : args.features,
                  args.output_stride != 0 ? args.output_stride : args.features};
    a.gate = static_cast<const T*>(args.gate);
    a.up = static_cast<const T*>(args.up);
    a.clamp = args.clamp;
    a.dy = static_cast<const T*>(args.dy);
    a.dgate = static_cast<T*>(args.dgate);
    a.dup = static_cast<T*>(args.dup);
    a.y = static_cast<T*>(args.y);
    launch("gated_backward", backward<T>, grid_of(args.rows, args.features), kThreads, 0, stream,
           a);
  });
}

}  // namespace snug::kernels::cuda
