// One block a row: a row's second sweep finds it in the first-level cache. Backward runs a fixed
// number of blocks over all rows, each with its share of dweight in shared memory, so that the
// order of that sum depends neither on the device nor on chance.
// Bytes an element, T those of its type, without what caches serve:
//   forward_row: reads T, writes T (with a residual 2 T and 2 T)
//   backward_rows: reads 2 T (with a residual 3 T), writes T
//   add_shares: reads 1024 a column, writes T
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/gradient_shares.cuh"
#include "core/kernels/cuda/operators.h"

namespace snug::kernels::cuda {
namespace {

constexpr int64_t kMaxDim = 24576;  // in backward a row of floats is shared
static_assert(4 * kMaxDim + kReductionBytes <= kMostSharedBytes);

template <class T, class W>
struct Forward {
  const T* x;
  const T* residual;
  T* sum;
  const W* weight;
  T* y;
  float* rstd;
  int64_t dim;
  float eps;
  NormForm form;
};

template <class W>
__device__ float weight_at(const W* weight, int64_t i, NormForm form) {
  if (weight == nullptr) return 1.f;
  return to_float(weight[i]) + (form == NormForm::Gemma ? 1.f : 0.f);
}

template <class T>
__device__ float normalized(float x, float rstd, NormForm form) {
  return form == NormForm::Llama ? round_to<T>(x * rstd) : x * rstd;
}

template <class T, class W>
__global__ void __launch_bounds__(kMostThreads) forward_row(Forward<T, W> a) {
  const int64_t row = blockIdx.x, begin = row * a.dim;
  const T* source = a.residual != nullptr ? a.sum : a.x;
  float squares = 0;
  for (int64_t i = threadIdx.x; i < a.dim; i += blockDim.x) {
    float v = to_float(a.x[begin + i]);
    if (a.residual != nullptr) {
      v = round_to<T>(v + to_float(a.residual[begin + i]));
      a.sum[begin + i] = from_float<T>(v);
    }
    squares += v * v;
  }
  const float mean = reduce_block(squares, 0.f, Add{}) / static_cast<float>(a.dim);
  const float rstd = 1.f / sqrtf(mean + a.eps);
  if (threadIdx.x == 0 && a.rstd != nullptr) a.rstd[row] = rstd;
  // Each thread reads again what it wrote itself.
  for (int64_t i = threadIdx.x; i < a.dim; i += blockDim.x) {
    const float n = normalized<T>(to_float(source[begin + i]), rstd, a.form);
    a.y[begin + i] = from_float<T>(n * weight_at(a.weight, i, a.form));
  }
}

template <class T, class W>
struct Backward {
  const T* dy;
  const T* x;
  const W* weight;
  const float* rstd;
  const T* d_residual;
  T* dx;
  float* partial;  // (kBackwardBlocks, D), or null
  int64_t rows;
  int64_t dim;
  NormForm form;
};

template <class T, class W>
__device__ void backward_row(const Backward<T, W>& a, int64_t row, float* dweight) {
  const int64_t begin = row * a.dim;
  const float rstd = a.rstd[row];
  float dot = 0;
  for (int64_t i = threadIdx.x; i < a.dim; i += blockDim.x) {
    const float g = to_float(a.dy[begin + i]) * weight_at(a.weight, i, a.form);
    dot += g * to_float(a.x[begin + i]);
  }
  const float mean = reduce_block(dot, 0.f, Add{}) * rstd / static_cast<float>(a.dim);
  for (int64_t i = threadIdx.x; i < a.dim; i += blockDim.x) {
    const float x = to_float(a.x[begin + i]), dy = to_float(a.dy[begin + i]);
    float dx = rstd * (dy * weight_at(a.weight, i, a.form) - x * rstd * mean);
    if (a.d_residual != nullptr) dx += to_float(a.d_residual[begin + i]);
    if (dweight != nullptr) dweight[i] += dy * normalized<T>(x, rstd, a.form);
    a.dx[begin + i] = from_float<T>(dx);
  }
}

// Column i belongs to thread i % blockDim.x throughout, so dweight needs no synchronisation.
template <class T, class W>
__global__ void __launch_bounds__(kMostThreads) backward_rows(Backward<T, W> a) {
  float* share = a.partial != nullptr ? dynamic_shared_floats() : nullptr;
  if (share != nullptr) {
    for (int64_t i = threadIdx.x; i < a.dim; i += blockDim.x) share[i] = 0;
  }
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) backward_row(a, row, share);
  if (share == nullptr) return;
  float* out = a.partial + blockIdx.x * a.dim;
  for (int64_t i = threadIdx.x; i < a.dim; i += blockDim.x) out[i] = share[i];
}

template <class T, class W>
void launch_backward(const RmsNormBackward& args, float* partial, cudaStream_t stream) {
  const Backward<T, W> a = {static_cast<const T*>(args.dy),
                            static_cast<const T*>(args.x),
                            static_cast<const W*>(args.weight),
                            args.rstd,
                            static_cast<const T*>(args.d_residual),
                            static_cast<T*>(args.dx),
                            partial,
                            args.rows,
                            args.dim,
                            args.form};
  const int64_t shared_bytes = partial != nullptr ? args.dim * 4 : 0;
  launch("rms_norm_backward/backward_rows", backward_rows<T, W>, kBackwardBlocks,
         threads_for(args.dim, 4), shared_bytes, stream, a);
}

}  // namespace

void rms_norm_forward(const RmsNormForward& args, cudaStream_t stream) {
  if (args.rows == 0) return;
  with_type(args.type, [&](auto type) {
    with_type(args.weight_type, [&](auto weight_type) {
      using T = decltype(type);
      using W = decltype(weight_type);
      const Forward<T, W> a = {static_cast<const T*>(args.x),
                               static_cast<const T*>(args.residual),
                               static_cast<T*>(args.sum),
                               static_cast<const W*>(args.weight),
                               static_cast<T*>(args.y),
                               args.rstd,
                               args.dim,
                               args.eps,
                               args.form};
      launch("rms_norm_forward", forward_row<T, W>, args.rows, threads_for(args.dim, 4), 0, stream,
             a);
    });
  });
}

int64_t rms_norm_backward_workspace_bytes(const RmsNormBackward& args) {
  return args.dweight.data != nullptr ? kBackwardBlocks * args.dim * 4 : 0;
}

void rms_norm_backward(const RmsNormBackward& args, void* workspace, cudaStream_t stream) {
  SNUG_CHECK(args.dim <= kMaxDim, "rms_norm over {} elements; at most {}", args.dim, kMaxDim);
  auto* partial = args.dweight.data != nullptr ? static_cast<float*>(workspace) : nullptr;
  with_type(args.type, [&](auto type) {
    with_type(args.weight_type, [&](auto weight_type) {
      launch_backward<decltype(type), decltype(weight_type)>(args, partial, stream);
    });
  });
  add_up("rms_norm_backward/add_shares", {partial, args.dweight}, {}, args.dim, stream);
}

}  // namespace snug::kernels::cuda
