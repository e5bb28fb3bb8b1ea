// Four elements a thread: reads and writes are all there is to it.
// Bytes an element, T those of its type:
//   drop: reads T (added to what is there 2 T), writes T
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
  __device__ int64_t index_of(int64_t i) const {
    if (columns == 0) return first_index + i;
    return place_of(first_column / whole_columns + i / columns) * whole_columns +
           first_column % whole_columns + i % columns;
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

}  // namespace

void dropout(const Dropout& args, cudaStream_t stream) {
  if (args.count == 0) return;
  // Rows of an odd width, from the second one on, begin anywhere.
  const bool aligned = aligned_to_four(args.x, args.type) && aligned_to_four(args.out, args.type);
  with_type(args.type, [&](auto type) {
    using T = decltype(type);
    launch(
        "dropout", drop<T>, blocks_for(args.count, 4 * kThreads), kThreads, 0, stream,
        static_cast<const T*>(args.x), static_cast<T*>(args.out), args.count, args.key,
        args.pass_key, args.key_mixes, args.threshold(), args.scale(), args.accumulate, aligned,
        Window{args.first_index, args.columns, args.first_column, args.whole_columns, args.places});
  });
}

}  // namespace snug::kernels::cuda
