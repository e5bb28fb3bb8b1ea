// Tokens are sorted by id (a stable radix sort); then one block for each place in that order, of
// which only those at which a segment begins do work: they add its tokens in order. Most ids are
// one segment, whose sum is rounded once into the gradient; those of longer ones wait in scratch
// for a second launch, which adds them in order (embedding_segments.h). No atomics, so that a run
// repeats to the bit.
// Bytes an element, T of the tokens' type and G of the gradient's, beside 68 a token for the sort:
//   count_up: writes 4 a token
//   add_segments: reads T a token, moves G an id (or writes 4 a segment)
//   add_partials: reads 4 a segment, moves G an id
//   copy_rows: reads T, writes T
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/operators.h"

#include <cub/device/device_radix_sort.cuh>

#include "base/error.h"
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/embedding_segments.h"
#include "core/kernels/cuda/scratch.h"

namespace snug::kernels::cuda {
namespace {

constexpr int kCountThreads = 256;

struct Workspace {
  int32_t* tokens;  // 0, 1, …
  int32_t* sorted_ids;
  int32_t* sorted_tokens;
  void* scratch;
  float* partials;  // (embedding_partial_rows, D); shares the sort's scratch, which is over by then
};

Workspace split(void* workspace, int64_t tokens) {
  auto* start = static_cast<char*>(workspace);
  const int64_t part = aligned_scratch(tokens * 4);
  const auto at = [&](int64_t k) { return reinterpret_cast<int32_t*>(start + k * part); };
  return {at(0), at(1), at(2), start + 3 * part, reinterpret_cast<float*>(start + 3 * part)};
}

__global__ void __launch_bounds__(kCountThreads) count_up(int32_t* tokens, int64_t count) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < count) tokens[i] = static_cast<int32_t>(i);
}

// The part of the table that is here.
struct Table {
  int64_t first_row, rows, dim;
  int32_t padding;

  // The row of an id; -1 where it gets no gradient here.
  __device__ int64_t row_of(int32_t id) const {
    const int64_t row = id - first_row;
    return row >= 0 && row < rows && id != padding ? row : -1;
  }
};

template <class G>
__device__ void add_to(G* element, float sum) {
  *element = from_float<G>(to_float(*element) + sum);
}

template <class T, class G>
__global__ void __launch_bounds__(kMostThreads)
    add_segments(const int32_t* ids, const int32_t* tokens, int64_t count, const T* dy, G* grad,
                 float* partials, Table table) {
  const int64_t row = table.row_of(ids[blockIdx.x]);
  if (row < 0) return;
  const Segment s = segment_at(ids, count, blockIdx.x);
  for (int64_t i = threadIdx.x; s.begin < s.end && i < table.dim; i += blockDim.x) {
    float sum = 0;
#pragma unroll 8  // loads that wait for each other would take a microsecond a token
    for (int64_t k = s.begin; k < s.end; ++k) sum += to_float(dy[tokens[k] * table.dim + i]);
    if (s.alone) {
      add_to(grad + row * table.dim + i, sum);
    } else {
      partials[s.row * table.dim + i] = sum;
    }
  }
}

template <class G>
__global__ void __launch_bounds__(kMostThreads)
    add_partials(const int32_t* ids, int64_t count, const float* partials, G* grad, Table table) {
  const int64_t first = blockIdx.x;
  const int64_t row = table.row_of(ids[first * kSegment]);
  if (row < 0) return;
  const Partials p = partials_at(ids, count, first);
  for (int64_t i = threadIdx.x; p.count > 0 && i < table.dim; i += blockDim.x) {
    float sum = 0;
#pragma unroll 8
    for (int64_t k = 0; k < p.count; ++k) sum += partials[(first + k) * table.dim + i];
    add_to(grad + row * table.dim + i, sum);
  }
}

template <class T>
__global__ void __launch_bounds__(kMostThreads)
    copy_rows(const int32_t* ids, const T* weight, T* out, int64_t dim, int64_t first_row,
              int64_t rows) {
  const int64_t token = blockIdx.x;
  const int64_t row = ids[token] - first_row;
  const bool is_here = row >= 0 && row < rows;
  for (int64_t i = threadIdx.x; i < dim; i += blockDim.x)
    out[token * dim + i] = is_here ? weight[row * dim + i] : from_float<T>(0.f);
}

}  // namespace

void embedding_forward(const EmbeddingForward& args, cudaStream_t stream) {
  if (args.tokens == 0) return;
  with_type(args.type, [&](auto type) {
    using T = decltype(type);
    launch("embedding_forward", copy_rows<T>, args.tokens, threads_for(args.dim, 4), 0, stream,
           args.ids, static_cast<const T*>(args.weight), static_cast<T*>(args.out), args.dim,
           args.first, args.vocabulary);
  });
}

int64_t embedding_backward_workspace_bytes(const EmbeddingBackward& args) {
  return embedding_scratch_bytes(args.tokens, args.dim);
}

void embedding_backward(const EmbeddingBackward& args, void* workspace, cudaStream_t stream) {
  if (args.tokens == 0) return;
  const Workspace w = split(workspace, args.tokens);
  launch("embedding_backward/count_up", count_up, blocks_for(args.tokens, kCountThreads),
         kCountThreads, 0, stream, w.tokens, args.tokens);
  auto bytes = static_cast<size_t>(sort_scratch_bytes(args.tokens));
  const cudaError_t sorted =
      cub::DeviceRadixSort::SortPairs(w.scratch, bytes, args.ids, w.sorted_ids, w.tokens,
                                      w.sorted_tokens, args.tokens, 0, 32, stream);
  SNUG_CHECK(sorted == cudaSuccess, "sorting {} ids: {}", args.tokens, cudaGetErrorString(sorted));
  with_type(args.type, [&](auto type) {
    with_type(args.grad_type, [&](auto grad_type) {
      using T = decltype(type);
      using G = decltype(grad_type);
      const Table table = {args.first, args.vocabulary, args.dim, args.padding_index};
      const int64_t threads = threads_for(args.dim, 4);
      auto* grad = static_cast<G*>(args.grad);
      launch("embedding_backward/add_segments", add_segments<T, G>, args.tokens, threads, 0, stream,
             w.sorted_ids, w.sorted_tokens, args.tokens, static_cast<const T*>(args.dy), grad,
             w.partials, table);
      if (args.tokens < 2 * kSegment) return;
      launch("embedding_backward/add_partials", add_partials<G>,
             embedding_partial_rows(args.tokens), threads, 0, stream, w.sorted_ids, args.tokens,
             w.partials, grad, table);
    });
  });
}

}  // namespace snug::kernels::cuda
