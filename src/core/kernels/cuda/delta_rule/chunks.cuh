// What the kernels of the gated delta rule and of Mamba 2's scan share: where chunks and their
// scratch lie, how a block loads them, and its products. See core/kernels/delta_rule.h for the
// names.
//
// A block has 8 warps. In a product a warp has the rows from kRows * warp on, and its lanes
// neighbouring columns: an element of the left operand then serves a whole warp, four at a time,
// and neighbouring lanes read neighbouring elements of the right one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/cuda/delta_rule/layout.h"
#include "core/kernels/cuda/elements.cuh"

namespace snug::kernels::cuda::delta {

// Kernels whose bounds say one block a multiprocessor would else spill registers to make room for
// two.
constexpr int kDeltaThreads = 256;
constexpr int kWarps = kDeltaThreads / 32;
constexpr int kSlice = 32;  // columns of a state that a block has

template <class T>
struct Inputs {
  Layout layout;
  const T *q, *k, *v;
  int64_t q_stride, k_stride, v_stride;
  const float *g, *beta, *skip;
  Scratch scratch;
};

__device__ inline int lane_of() { return static_cast<int>(threadIdx.x % 32); }
__device__ inline int warp_of() { return static_cast<int>(threadIdx.x / 32); }

__device__ inline float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// Tokens of one document.
struct Chunk {
  int64_t first;  // over all documents
  int64_t slot;   // of its scratch
  int count;
};

__device__ inline int64_t chunks_of(const Layout& layout, int64_t document) {
  const int64_t tokens = layout.borders[document + 1] - layout.borders[document];
  return (tokens + layout.chunk - 1) / layout.chunk;
}

// Documents start at slots of their own: a document of n tokens has room for n / chunk + 1.
__device__ inline Chunk chunk_at(const Layout& layout, int64_t document, int64_t number) {
  const int64_t begin = layout.borders[document], first = begin + number * layout.chunk;
  const int64_t left = layout.borders[document + 1] - first;
  return {first, begin / layout.chunk + document + number,
          static_cast<int>(left < layout.chunk ? left : layout.chunk)};
}

// exp(b) and exp(B - b) of a chunk's tokens, and beta; 0 beyond them.
struct Gates {
  float *from_start, *to_end, *beta;
};
__device__ inline float sum_at(const Scratch& scratch, int64_t at, int part) {
  return scratch.sums[2 * at + part];
}
template <int C>
__device__ Gates load_gates(const Layout& layout, const Scratch& scratch, const float* beta,
                            const Chunk& chunk, int64_t head, float* room) {
  const Gates gates = {room, room + C, room + 2 * C};
  const int64_t last = layout.gate(chunk.first + chunk.count - 1, head);
  for (int i = static_cast<int>(threadIdx.x); i < C; i += kDeltaThreads) {
    const bool exists = i < chunk.count;
    const int64_t at = layout.gate(chunk.first + (exists ? i : 0), head);
    const float high = sum_at(scratch, at, 0), low = sum_at(scratch, at, 1);
    const float left = (sum_at(scratch, last, 0) - high) + (sum_at(scratch, last, 1) - low);
    gates.from_start[i] = exists ? expf(high + low) : 0.f;
    gates.to_end[i] = exists ? expf(left) : 0.f;
    gates.beta[i] = exists ? beta[at] : 0.f;
  }
  return gates;
}

template <class T>
__device__ float inverse_length(const T* row, int64_t dim) {
  float squares = 0;
  for (int64_t d = lane_of(); d < dim; d += 32) {
    const float x = to_float(row[d]);
    squares += x * x;
  }
  return 1.f / sqrtf(warp_sum(squares) + kDeltaRuleEps);
}

// What a row of q or k is multiplied by: to have length `factor`, or nothing.
template <StateForm kForm, class T>
__device__ float key_scale(const T* row, int64_t dim, float factor) {
  if constexpr (kForm == StateForm::Sum) return 1.f;
  return factor * inverse_length(row, dim);
}
__device__ inline float query_factor(int64_t dim) { return 1.f / sqrtf(static_cast<float>(dim)); }

// A chunk's rows of q or k as the form reads them, `stride` apart in shared memory; zeros beyond.
template <int C, StateForm kForm, class T>
__device__ void load_key_rows(const T* x, int64_t x_stride, int64_t dim, int count, float factor,
                              float* out, int64_t stride) {
  for (int row = warp_of(); row < C; row += kWarps) {
    const T* from = x + row * x_stride;
    const float scale = row < count ? key_scale<kForm>(from, dim, factor) : 0.f;
    for (int64_t d = lane_of(); d < stride; d += 32)
      out[row * stride + d] = row < count && d < dim ? to_float(from[d]) * scale : 0.f;
  }
}
template <int C, StateForm kForm, class T>
__device__ void load_queries(const Inputs<T>& a, const Chunk& chunk, int64_t key_head, float* out,
                             int64_t stride) {
  const int64_t dim = a.layout.key_dim;
  load_key_rows<C, kForm>(a.q + chunk.first * a.q_stride + key_head * dim, a.q_stride, dim,
                          chunk.count, query_factor(dim), out, stride);
}
template <int C, StateForm kForm, class T>
__device__ void load_keys(const Inputs<T>& a, const Chunk& chunk, int64_t key_head, float* out,
                          int64_t stride) {
  const int64_t dim = a.layout.key_dim;
  load_key_rows<C, kForm>(a.k + chunk.first * a.k_stride + key_head * dim, a.k_stride, dim,
                          chunk.count, 1.f, out, stride);
}

// Columns [first, first + kSlice) of rows, `stride` apart in shared memory, times their factors;
// zeros beyond.
template <class T>
__device__ void load_slice(const T* x, int64_t x_stride, int64_t first, int64_t cols, int64_t count,
                           int64_t rows, const float* factors, float* out, int64_t stride) {
  for (int64_t i = threadIdx.x; i < rows * kSlice; i += kDeltaThreads) {
    const int64_t row = i / kSlice, col = i % kSlice;
    float value = 0.f;
    if (row < count && first + col < cols) {
      value = to_float(x[row * x_stride + first + col]);
      if (factors != nullptr) value *= factors[row];
    }
    out[row * stride + col] = value;
  }
}

// A chunk's scores; zeros beyond its tokens.
template <int C>
__device__ void load_scores(const float* scores, int64_t chunk, int count, float* out) {
  for (int i = static_cast<int>(threadIdx.x); i < C * C; i += kDeltaThreads) {
    const int row = i / C, col = i % C;
    out[i] = row < count && col < count ? scores[row * chunk + col] : 0.f;
  }
}

// Shared memory of a block that walks a document's chunks with its slice of a state, or of the
// state's gradient, from the first or from the last.
constexpr int64_t walk_floats(int64_t tokens, int64_t key_stride) {
  return (3 + key_stride + tokens + 2 * kSlice) * tokens + key_stride * kSlice;
}
template <int C>
struct WalkShared {
  __device__ explicit WalkShared(int64_t key_stride)
      : keys(dynamic_shared_floats()),
        scores(keys + C * key_stride),
        state(scores + C * C),
        one(state + key_stride * kSlice),
        other(one + C * kSlice),
        gates(other + C * kSlice) {}
  float *keys, *scores, *state;
  float *one, *other;  // (C, kSlice)
  float* gates;
};

__device__ inline Four<float> four_at(const float* x) {
  return *reinterpret_cast<const Four<float>*>(x);
}

// sums[k][m] += left[row + k] · right column (lane + 32 m), where element (p, j) of the right
// operand lies at right[p * depth_stride + j * col_stride]. The depth is a multiple of 4.
template <int kRows, int kCols>
__device__ void add_product(const float* left, int64_t left_stride, const float* right,
                            int64_t depth_stride, int64_t col_stride, int64_t depth,
                            float (&sums)[kRows][kCols]) {
  const float* rows = left + kRows * warp_of() * left_stride;
  const float* cols = right + lane_of() * col_stride;
#pragma unroll 1
  for (int64_t p = 0; p < depth; p += 4) {
    float values[4][kCols];
#pragma unroll
    for (int s = 0; s < 4; ++s) {
#pragma unroll
      for (int m = 0; m < kCols; ++m)
        values[s][m] = cols[(p + s) * depth_stride + 32 * m * col_stride];
    }
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      const Four<float> factors = four_at(rows + k * left_stride + p);
#pragma unroll
      for (int s = 0; s < 4; ++s) {
#pragma unroll
        for (int m = 0; m < kCols; ++m) sums[k][m] += factors.values[s] * values[s][m];
      }
    }
  }
}

// As above with the left operand transposed: element (p, row) at left[p * left_stride + row], and
// neighbouring columns of the right one beside each other.
template <int kRows, int kCols>
__device__ void add_transposed(const float* left, int64_t left_stride, const float* right,
                               int64_t right_stride, int64_t depth, float (&sums)[kRows][kCols]) {
  const float* rows = left + kRows * warp_of();
  const float* cols = right + lane_of();
#pragma unroll 2
  for (int64_t p = 0; p < depth; ++p) {
    float values[kCols];
#pragma unroll
    for (int m = 0; m < kCols; ++m) values[m] = cols[p * right_stride + 32 * m];
#pragma unroll
    for (int k = 0; k < kRows; k += 4) {
      const Four<float> factors = four_at(rows + p * left_stride + k);
#pragma unroll
      for (int s = 0; s < 4; ++s) {
#pragma unroll
        for (int m = 0; m < kCols; ++m) sums[k + s][m] += factors.values[s] * values[m];
      }
    }
  }
}

// state = decay * state + sign * keys' values, for a slice of a state (key_stride, kSlice). A warp
// has four neighbouring rows of every 32.
__device__ inline void advance_state(float* state, float decay, float sign, const float* keys,
                                     int64_t key_stride, const float* values, int count) {
  const int lane = lane_of();
  for (int64_t d = 4 * warp_of(); d < key_stride; d += 4 * kWarps) {
    float sums[4] = {};
#pragma unroll 2
    for (int i = 0; i < count; ++i) {
      const Four<float> key = four_at(keys + i * key_stride + d);
      const float value = values[i * kSlice + lane];
#pragma unroll
      for (int s = 0; s < 4; ++s) sums[s] += key.values[s] * value;
    }
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      float& element = state[(d + s) * kSlice + lane];
      element = decay * element + sign * sums[s];
    }
  }
}

// A slice of a state from or to a matrix (dk, dv) in device memory.
__device__ inline void store_state(const Layout& layout, const float* state, int64_t first_col,
                                   float* to) {
  for (int64_t i = threadIdx.x; i < layout.key_dim * kSlice; i += kDeltaThreads) {
    const int64_t row = i / kSlice, col = first_col + i % kSlice;
    if (col < layout.value_dim) to[row * layout.value_dim + col] = state[i];
  }
}

}  // namespace snug::kernels::cuda::delta
