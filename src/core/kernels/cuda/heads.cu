// One launch for all arrays, a row of the grid for each; one element of the copy, or of the block,
// a thread. Bytes an element, T those of the tokens' type:
//   copy_heads_to_width: reads T, writes T
//   move_rows: reads T and writes 4, or the other way (adding: reads 4 + T, writes T)
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/heads.h"

#include <algorithm>

#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/operators.h"

namespace snug::kernels::cuda {
namespace {

constexpr int kHeadThreads = 256;

template <class T>
__global__ void __launch_bounds__(kHeadThreads)
    copy_heads_to_width(const __grid_constant__ HeadWidths a) {
  const HeadWidths::Copy& copy = a.copies[blockIdx.y];
  const int64_t i = blockIdx.x * int64_t{kHeadThreads} + threadIdx.x;
  if (i >= copy.tokens * copy.heads * a.to_dim) return;
  const int64_t head = i / a.to_dim, within = i % a.to_dim;
  const int64_t token = head / copy.heads;
  const int64_t from = token * copy.from_stride + head % copy.heads * a.from_dim + within;
  static_cast<T*>(copy.to)[i] =
      within < a.from_dim ? static_cast<const T*>(copy.from)[from] : from_float<T>(0.f);
}

template <class T>
__global__ void __launch_bounds__(kHeadThreads) move_rows(const __grid_constant__ HeadRows a) {
  const HeadRows::Array& array = a.arrays[blockIdx.y];
  const int64_t i = blockIdx.x * int64_t{kHeadThreads} + threadIdx.x;
  const int64_t of_document = array.heads * array.rows * a.dim;
  if (i >= a.documents * of_document) return;
  const int64_t document = i / of_document, head = i / (array.rows * a.dim) % array.heads;
  const int64_t row = i / a.dim % array.rows;
  int64_t token = document * array.rows + row;
  bool exists = true;
  if (array.borders != nullptr) {
    token = array.borders[document] + row;
    exists = token < array.borders[document + 1];
  }
  const int64_t at = token * array.stride + head * a.dim + i % a.dim;
  if (a.way == HeadRows::Way::Read) {
    static_cast<float*>(array.to)[i] =
        exists ? to_float(static_cast<const T*>(array.from)[at]) : 0.f;
  } else if (exists) {
    const float own = static_cast<const float*>(array.from)[i];
    T& to = static_cast<T*>(array.to)[at];
    to = from_float<T>(a.way == HeadRows::Way::Add ? to_float(to) + own : own);
  }
}

}  // namespace

void change_head_widths(const HeadWidths& args, cudaStream_t stream) {
  int64_t most = 0, arrays = 0;
  for (const HeadWidths::Copy& copy : args.copies) {
    if (copy.tokens == 0) break;
    most = std::max(most, copy.tokens * copy.heads * args.to_dim);
    ++arrays;
  }
  if (most == 0) return;
  with_type(args.type, [&](auto type) {
    launch("change_head_widths", copy_heads_to_width<decltype(type)>,
           Grid{blocks_for(most, kHeadThreads), arrays}, kHeadThreads, 0, stream, args);
  });
}

void move_head_rows(const HeadRows& args, cudaStream_t stream) {
  int64_t most = 0, arrays = 0;
  for (const HeadRows::Array& array : args.arrays) {
    if (array.rows == 0) break;
    most = std::max(most, args.documents * array.heads * array.rows * args.dim);
    ++arrays;
  }
  if (most == 0) return;
  with_type(args.type, [&](auto type) {
    launch("move_head_rows", move_rows<decltype(type)>,
           Grid{blocks_for(most, kHeadThreads), arrays}, kHeadThreads, 0, stream, args);
  });
}

}  // namespace snug::kernels::cuda
