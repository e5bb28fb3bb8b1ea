// As rms_norm.cu: one block a row in the forward; a fixed number of blocks over all rows in the
// backward, each with its shares of dweight and dbias, so that the order of those sums depends
// neither on the device nor on chance. The shares are summed in the scratch itself, where a column
// belongs to one thread: two rows of floats need not fit the shared memory.
// Bytes an element, T those of its type, without what caches serve:
//   forward_row: reads T, writes T (with a residual 2 T and 2 T)
//   backward_rows: reads 2 T (with a residual 3 T), writes T
//   add_shares: reads 1024 a column, writes T
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/gradient_shares.cuh"
#include "core/kernels/cuda/operators.h"

namespace snug::kernels::cuda {
namespace {

template <class T, class W>
struct Forward {
  const T* x;
  const T* residual;
  T* sum;
  const W* weight;
  const W* bias;
  T* y;
  float* mean;
  float* rstd;
  int64_t dim;
  float eps;
};

template <class W>
__device__ float value_or(const W* values, int64_t i, float without) {
  return values != nullptr ? to_float(values[i]) : without;
}

template <class T, class W>
__global__ void __launch_bounds__(kMostThreads) forward_row(Forward<T, W> a) {
  const int64_t row = blockIdx.x, begin = row * a.dim;
  const T* source = a.residual != nullptr ? a.sum : a.x;
  float total = 0;
  for (int64_t i = threadIdx.x; i < a.dim; i += blockDim.x) {
    float v = to_float(a.x[begin + i]);
    if (a.residual != nullptr) {
      v = round_to<T>(v + to_float(a.residual[begin + i]));
      a.sum[begin + i] = from_float<T>(v);
    }
    total += v;
  }
  const float mean = reduce_block(total, 0.f, Add{}) / static_cast<float>(a.dim);
  // Each thread reads again what it wrote itself.
  float squares = 0;
  for (int64_t i = threadIdx.x; i < a.dim; i += blockDim.x) {
    const float v = to_float(source[begin + i]) - mean;
    squares += v * v;
  }
  const float variance = reduce_block(squares, 0.f, Add{}) / static_cast<float>(a.dim);
  const float rstd = 1.f / sqrtf(variance + a.eps);
  if (threadIdx.x == 0 && a.mean != nullptr) a.mean[row] = mean;
  if (threadIdx.x == 0 && a.rstd != nullptr) a.rstd[row] = rstd;
  for (int64_t i = threadIdx.x; i < a.dim; i += blockDim.x) {
    const float n = (to_float(source[begin + i]) - mean) * rstd;
    a.y[begin + i] = from_float<T>(n * value_or(a.weight, i, 1.f) + value_or(a.bias, i, 0.f));
  }
}

template <class T, class W>
struct Backward {
  const T* dy;
  const T* x;
  const W* weight;
  const float* mean;
  const float* rstd;
  const T* d_residual;
  T* dx;
  float* dweight;  // (kBackwardBlocks, D), or null
  float* dbias;    // (kBackwardBlocks, D), or null
  int64_t rows;
  int64_t dim;
};

template <class T, class W>
__device__ void backward_row(const Backward<T, W>& a, int64_t row, float* dweight, float* dbias) {
  const int64_t begin = row * a.dim;
  const float mean = a.mean[row], rstd = a.rstd[row];
  float of_g = 0, of_gn = 0;
  for (int64_t i = threadIdx.x; i < a.dim; i += blockDim.x) {
    const float g = to_float(a.dy[begin + i]) * value_or(a.weight, i, 1.f);
    of_g += g;
    of_gn += g * (to_float(a.x[begin + i]) - mean);
  }
  const float mean_g = reduce_block(of_g, 0.f, Add{}) / static_cast<float>(a.dim);
  const float mean_gn = reduce_block(of_gn, 0.f, Add{}) * rstd / static_cast<float>(a.dim);
  for (int64_t i = threadIdx.x; i < a.dim; i += blockDim.x) {
    const float n = (to_float(a.x[begin + i]) - mean) * rstd;
    const float dy = to_float(a.dy[begin + i]);
    float dx = rstd * (dy * value_or(a.weight, i, 1.f) - mean_g - n * mean_gn);
    if (a.d_residual != nullptr) dx += to_float(a.d_residual[begin + i]);
    if (dweight != nullptr) dweight[i] += dy * n;
    if (dbias != nullptr) dbias[i] += dy;
    a.dx[begin + i] = from_float<T>(dx);
  }
}

// Column i belongs to thread i % blockDim.x throughout, so the shares need no synchronisation.
template <class T, class W>
__global__ void __launch_bounds__(kMostThreads) backward_rows(Backward<T, W> a) {
  float* dweight = a.dweight != nullptr ? a.dweight + blockIdx.x * a.dim : nullptr;
  float* dbias = a.dbias != nullptr ? a.dbias + blockIdx.x * a.dim : nullptr;
  for (int64_t i = threadIdx.x; i < a.dim; i += blockDim.x) {
    if (dweight != nullptr) dweight[i] = 0;
    if (dbias != nullptr) dbias[i] = 0;
  }
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x)
    backward_row(a, row, dweight, dbias);
}

}  // namespace

void layer_norm_forward(const LayerNormForward& args, cudaStream_t stream) {
  if (args.rows == 0) return;
  with_type(args.type, [&](auto type) {
    with_type(args.weight_type, [&](auto weight_type) {
      using T = decltype(type);
      using W = decltype(weight_type);
      const Forward<T, W> a = {static_cast<const T*>(args.x),
                               static_cast<const T*>(args.residual),
                               static_cast<T*>(args.sum),
                               static_cast<const W*>(args.weight),
                               static_cast<const W*>(args.bias),
                               static_cast<T*>(args.y),
                               args.mean,
                               args.rstd,
                               args.dim,
                               args.eps};
      launch("layer_norm_forward", forward_row<T, W>, args.rows, threads_for(args.dim, 4), 0,
             stream, a);
    });
  });
}

int64_t layer_norm_backward_workspace_bytes(const LayerNormBackward& args) {
  const int wanted = (args.dweight.data != nullptr ? 1 : 0) + (args.dbias.data != nullptr ? 1 : 0);
  return wanted * kBackwardBlocks * args.dim * 4;
}

void layer_norm_backward(const LayerNormBackward& args, void* workspace, cudaStream_t stream) {
  auto* next = static_cast<float*>(workspace);
  float* dweight = args.dweight.data != nullptr ? next : nullptr;
  if (dweight != nullptr) next += kBackwardBlocks * args.dim;
  float* dbias = args.dbias.data != nullptr ? next : nullptr;
  with_type(args.type, [&](auto type) {
    with_type(args.weight_type, [&](auto weight_type) {
      using T = decltype(type);
      using W = decltype(weight_type);
      const Backward<T, W> a = {static_cast<const T*>(args.dy),
                                static_cast<const T*>(args.x),
                                static_cast<const W*>(args.weight),
                                args.mean,
                                args.rstd,
                                static_cast<const T*>(args.d_residual),
                                static_cast<T*>(args.dx),
                                dweight,
                                dbias,
                                args.rows,
                                args.dim};
      launch("layer_norm_backward/backward_rows", backward_rows<T, W>, kBackwardBlocks,
             threads_for(args.dim, 4), 0, stream, a);
    });
  });
  add_up("layer_norm_backward/add_shares", {dweight, args.dweight}, {dbias, args.dbias}, args.dim,
         stream);
}

}  // namespace snug::kernels::cuda
