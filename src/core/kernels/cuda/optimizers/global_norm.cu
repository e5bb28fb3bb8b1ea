// Each block sums 16384 elements in double; one block then adds the blocks' sums in a fixed order.
// Bytes an element, T those of its type:
//   sum_list: reads T
//   add_sums: reads 8 for 16384 elements
//   compute_factor: reads 8, writes 4 in all
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/optimizers/optimizers.h"

#include "core/kernels/cuda/optimizers/tensor_list.cuh"

namespace snug::kernels::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kListThreads)
    sum_list(const __grid_constant__ TensorList<TensorView> list, double* sums) {
  const BlockRange at = range_of_block(list, blockIdx.x);
  const auto* data = static_cast<const T*>(list.tensors[at.tensor].data);
  double own = 0;
  for (int64_t i = at.begin + threadIdx.x; i < at.end; i += kListThreads) {
    const double v = to_float(data[i]);
    own += v * v;
  }
  own = reduce_block(own, 0.0, Add{});
  if (threadIdx.x == 0) sums[blockIdx.x] = own;
}

__global__ void __launch_bounds__(kMostThreads)
    add_sums(const double* sums, int64_t count, double* total) {
  double own = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) own += sums[i];
  own = reduce_block(own, 0.0, Add{});
  if (threadIdx.x == 0) *total = own;
}

__global__ void __launch_bounds__(1)
    compute_factor(const double* sum, double unscale, double max_norm, float* factor) {
  const double norm = unscale * sqrt(*sum);
  const double clip = max_norm > 0 && isfinite(norm) ? max_norm / (norm + 1e-6) : 1.0;
  *factor = isfinite(norm) ? static_cast<float>(unscale * (clip < 1.0 ? clip : 1.0)) : NAN;
}

int64_t num_blocks(std::span<const TensorView> tensors) {
  int64_t blocks = 0;
  for (const TensorView& tensor : tensors) blocks += blocks_for(tensor.count, kListBlock);
  return blocks;
}

}  // namespace

int64_t sum_of_squares_workspace_bytes(std::span<const TensorView> tensors) {
  return num_blocks(tensors) * static_cast<int64_t>(sizeof(double));
}

void sum_of_squares(std::span<const TensorView> tensors, double* sum, void* workspace,
                    cudaStream_t stream) {
  auto* sums = static_cast<double*>(workspace);
  int64_t done = 0;
  const auto kind = [](const TensorView& t) { return t.type; };
  for_each_list(tensors, kind, [&](const auto& list, int64_t blocks) {
    with_type(list.tensors[0].type, [&](auto type) {
      launch("sum_of_squares/sum_list", sum_list<decltype(type)>, blocks, kListThreads, 0, stream,
             list, sums + done);
    });
    done += blocks;
  });
  launch("sum_of_squares/add_sums", add_sums, 1, kMostThreads, 0, stream, sums, done, sum);
}

void clip_factor(const double* sum, double unscale, double max_norm, float* factor,
                 cudaStream_t stream) {
  launch("clip_factor", compute_factor, 1, 1, 0, stream, sum, unscale, max_norm, factor);
}

}  // namespace snug::kernels::cuda
