// A block sums 16 columns: 32 bytes of 16-bit numbers, as much as memory gives at once, so that a
// row of 2048 has a block for nearly every multiprocessor. Each of 64 lanes adds every 64th row up
// in float32, then the lanes' sums are added in a fixed tree: the order depends neither on the
// device nor on chance, and one launch is all.
// Bytes an element, T those of its type:
//   sum_columns_of_rows: reads T
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/sum_of_rows.h"

#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/operators.h"

namespace snug::kernels::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kColumns = 16, kLanes = kThreads / kColumns;

template <class T, class G>
__global__ void __launch_bounds__(kThreads)
    sum_columns_of_rows(const T* x, G* total, int64_t rows, int64_t dim, int64_t row_stride,
                        bool accumulate) {
  __shared__ float sums[kLanes][kColumns];
  const int of_block = static_cast<int>(threadIdx.x) % kColumns;
  const int lane = static_cast<int>(threadIdx.x) / kColumns;
  const int64_t column = blockIdx.x * int64_t{kColumns} + of_block;
  float sum = 0;
  for (int64_t row = lane; row < rows && column < dim; row += kLanes)
    sum += to_float(x[row * row_stride + column]);
  sums[lane][of_block] = sum;
  for (int half = kLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) sums[lane][of_block] += sums[lane + half][of_block];
  }
  if (lane > 0 || column >= dim) return;
  sum = sums[0][of_block];
  if (accumulate) sum += to_float(total[column]);
  total[column] = from_float<G>(sum);
}

}  // namespace

void sum_of_rows(const SumOfRows& args, cudaStream_t stream) {
  if (args.dim == 0) return;
  with_type(args.type, [&](auto type) {
    with_type(args.total.type, [&](auto total_type) {
      using T = decltype(type);
      using G = decltype(total_type);
      launch("sum_of_rows", sum_columns_of_rows<T, G>, blocks_for(args.dim, kColumns), kThreads, 0,
             stream, static_cast<const T*>(args.x), static_cast<G*>(args.total.data), args.rows,
             args.dim, args.row_stride, args.total.accumulate);
    });
  });
}

}  // namespace snug::kernels::cuda
