// Four elements a thread: reads and writes are all there is to it.
// Bytes an element, T those of its type:
//   drop: reads T (added to what is there 2 T), writes T
//   add_noise: reads T, writes T
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/operators.h"

#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/rounding.cuh"

namespace snug::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Which element of the wider matrix an element is.
struct Window {
  int64_t first_index, columns, first_column, whole_columns;
  RowPlaces places;
  __device__ int64_t place_of(int64_t row) const {
    if (places.stretch == 0) return row;
    return row < places.stretch ? places.first + row : places.second + row - places.stretch;
  }
  __device__ int64_t row_of(int64_t i) const { return first_column / whole_columns + i / columns; }
  __device__ int64_t index_of(int64_t i) const {
    if (columns == 0) return first_index + i;
    return place_of(row_of(i)) * whole_columns + first_column % whole_columns + i % columns;
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    drop(const T* x, T* out, int64_t count, uint64_t own_key, const uint64_t* pass_key,
         int key_mixes, uint32_t threshold, float scale, bool accumulate, bool aligned,
         Window window) {
  const int64_t i = 4 * (blockIdx.x * int64_t{kThreads} + threadIdx.x);
  if (i >= count) return;
  const uint64_t key = mask_key_of(own_key, pass_key, key_mixes);
  Floats4 value = read_any(x, i, count, aligned);
  for (int k = 0; k < 4; ++k)
    value.values[k] =
        random_bits(key, window.index_of(i + k)) >= threshold ? value.values[k] * scale : 0.f;
  if (accumulate) {
    const Floats4 sum = read_any(static_cast<const T*>(out), i, count, aligned);
    for (int k = 0; k < 4; ++k) value.values[k] += sum.values[k];
  }
  write_any(out, i, count, value, aligned);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    add_noise(const T* x, T* out, int64_t count, uint64_t own_key, const uint64_t* pass_key,
              int key_mixes, const float* noise, float scale, bool aligned, Window window) {
  const int64_t i = 4 * (blockIdx.x * int64_t{kThreads} + threadIdx.x);
  if (i >= count) return;
  const uint64_t key = mask_key_of(own_key, pass_key, key_mixes);
  Floats4 value = read_any(x, i, count, aligned);
  for (int k = 0; k < 4 && i + k < count; ++k) {
    const auto drawn = static_cast<int32_t>(random_bits(key, window.index_of(i + k)));
    value.values[k] += noise[window.row_of(i + k)] * scale * static_cast<float>(drawn);
  }
  write_any(out, i, count, value, aligned);
}

}  // namespace

void dropout(const Dropout& args, cudaStream_t stream) {
  if (args.count == 0) return;
  // Rows of an odd width, from the second one on, begin anywhere.
  const bool aligned = aligned_to_four(args.x, args.type) && aligned_to_four(args.out, args.type);
  with_type(args.type, [&](auto type) {
    using T = decltype(type);
    const auto* x = static_cast<const T*>(args.x);
    auto* out = static_cast<T*>(args.out);
    const Window window{args.first_index, args.columns, args.first_column, args.whole_columns,
                        args.places};
    const int64_t blocks = blocks_for(args.count, 4 * kThreads);
    if (args.noise != nullptr)
      launch("noise", add_noise<T>, blocks, kThreads, 0, stream, x, out, args.count, args.key,
             args.pass_key, args.key_mixes, args.noise, args.noise_scale * 0x1p-31f, aligned,
             window);
    else
      launch("dropout", drop<T>, blocks, kThreads, 0, stream, x, out, args.count, args.key,
             args.pass_key, args.key_mixes, args.threshold(), args.scale(), args.accumulate,
             aligned, window);
  });
}

}  // namespace snug::kernels::cuda
