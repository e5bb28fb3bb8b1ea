// Two launches: the scores of all chunks at once, a block each; then a block for 32 columns of a
// head's state walks the document's chunks with its part of the state in shared memory. The
// backward launches the same two, and then keeps what the states were and E. Columns of a state do
// not meet, so that no block waits for another.
// Bytes of a chunk of C tokens and a value head, T those of a type; with those of shared memory for
// keys of 128; a sum reads and writes no Y and X, 4 C C each:
//   chunk_scores: reads 2 C dk T, writes 8 C (C + 1), in a backward 4 C C more; shares 66560
//   scan_chunks: reads C (2 dk + dv) T + 8 C C, writes C dv T or 4 (C + dk) dv; shares 82688
//   single_step: reads 4 dk dv, writes 4 dk dv
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "core/kernels/cuda/delta_rule/chunks.cuh"
#include "core/kernels/cuda/delta_rule/launches.h"

namespace snug::kernels::cuda {
namespace delta {
namespace {

// --- Scores

// b in two parts: what a float32 drops of a long sum counts where two of them differ by little.
template <class T>
__device__ void sum_gates(const Inputs<T>& a, const Chunk& chunk, int64_t head, float* high,
                          float* low) {
  for (int i = static_cast<int>(threadIdx.x); i < chunk.count; i += kDeltaThreads)
    high[i] = a.g[a.layout.gate(chunk.first + i, head)];
  __syncthreads();
  if (threadIdx.x == 0) {
    double sum = 0;
    for (int i = 0; i < chunk.count; ++i) {
      sum += high[i];
      high[i] = static_cast<float>(sum);
      low[i] = static_cast<float>(sum - high[i]);
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < chunk.count; i += kDeltaThreads) {
    float* to = a.scratch.sums + 2 * a.layout.gate(chunk.first + i, head);
    to[0] = high[i];
    to[1] = low[i];
  }
}

// Y = X - X (beta Y), row by row; four lanes of a warp share a column, and a column is a warp's
// own.
template <int C>
__device__ void substitute(const float* x, const float* beta, int count, float* y) {
  const int part = static_cast<int>(threadIdx.x % 4);
  for (int first = 0; first < C; first += kDeltaThreads / 4) {
    const int col = first + static_cast<int>(threadIdx.x / 4);
    for (int row = 0; row < count; ++row) {
      float sum = 0.f;
      if (col < row) {
        for (int j = col + 1 + part; j < row; j += 4)
          sum += x[row * C + j] * beta[j] * y[j * C + col];
      }
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      if (part == 0 && col < C) y[row * C + col] = col < row ? x[row * C + col] - sum : 0.f;
      __syncwarp();
    }
  }
}

template <int C>
__device__ void store_scores(const float* scores, int64_t chunk, int count, float* to) {
  for (int i = static_cast<int>(threadIdx.x); i < count * C; i += kDeltaThreads) {
    const int row = i / C, col = i % C;
    if (col < count) to[row * chunk + col] = scores[i];
  }
}

constexpr int64_t scores_floats(int64_t tokens, int64_t key_stride) {
  const int64_t queries = tokens * key_stride, squares = 2 * tokens * tokens;
  return 3 * tokens + tokens * (key_stride + 1) + (queries > squares ? queries : squares);
}

template <int C, StateForm kForm, class T>
__global__ void __launch_bounds__(kDeltaThreads, 1) chunk_scores(Inputs<T> a) {
  constexpr bool kSolves = kForm == StateForm::Delta;
  constexpr int kRows = C / kWarps, kCols = C / 32;
  const Layout& layout = a.layout;
  const int64_t document = blockIdx.x / layout.most_chunks,
                number = blockIdx.x % layout.most_chunks;
  const int64_t head = blockIdx.y, key_head = head / layout.group();
  if (number >= chunks_of(layout, document)) return;
  const Chunk chunk = chunk_at(layout, document, number);
  const int64_t stride = layout.key_stride;

  float* high = dynamic_shared_floats();
  float *low = high + C, *beta = low + C;
  float* q = beta + C;  // later the two squares
  const int64_t queries = C * stride, squares = 2 * C * C;
  float* k = q + (queries > squares ? queries : squares);  // (C, stride + 1): no bank twice
  sum_gates(a, chunk, head, high, low);
  load_keys<C, kForm>(a, chunk, key_head, k, stride + 1);
  float kk[kRows][kCols] = {}, qk[kRows][kCols] = {};
  if constexpr (kSolves) {
    for (int i = static_cast<int>(threadIdx.x); i < chunk.count; i += kDeltaThreads)
      beta[i] = a.beta[layout.gate(chunk.first + i, head)];
    // The keys as left operand first, which is read four elements at a time.
    load_keys<C, kForm>(a, chunk, key_head, q, stride);
    __syncthreads();
    add_product(q, stride, k, 1, stride + 1, stride, kk);
    __syncthreads();
  }
  load_queries<C, kForm>(a, chunk, key_head, q, stride);
  __syncthreads();
  add_product(q, stride, k, 1, stride + 1, stride, qk);
  __syncthreads();
  float *x = q, *y = q + C * C;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int m = 0; m < kCols; ++m) {
      const int row = kRows * warp_of() + r, col = lane_of() + 32 * m;
      const bool is_before = col <= row && row < chunk.count;
      const float decay = is_before ? expf((high[row] - high[col]) + (low[row] - low[col])) : 0.f;
      if constexpr (kSolves) x[row * C + col] = col < row && is_before ? decay * kk[r][m] : 0.f;
      if (row < chunk.count && col < chunk.count)
        a.scratch.p[layout.square(chunk.slot, head) + row * layout.chunk + col] =
            is_before ? decay * qk[r][m] : 0.f;
    }
  }
  if constexpr (kSolves) {
    __syncthreads();
    substitute<C>(x, beta, chunk.count, y);
    __syncthreads();
    const int64_t square = layout.square(chunk.slot, head);
    store_scores<C>(y, layout.chunk, chunk.count, a.scratch.y + square);
    if (a.scratch.x != nullptr) store_scores<C>(x, layout.chunk, chunk.count, a.scratch.x + square);
  }
}

// --- The states

template <class T>
struct Scan {
  Inputs<T> in;
  T* out;               // null in a backward
  float* final_states;  // or null
};

// Columns of a chunk's values in a thread: kRows rows of one column.
template <int kRows>
struct Column {
  float values[kRows][1];
};

template <int kRows, class Body>
__device__ void each_row(const Body& body) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) body(r, kRows * warp_of() + r);
}

// V of a block's columns.
template <int C, class T>
__device__ Column<C / kWarps> load_values(const Scan<T>& a, const Chunk& chunk, int64_t head,
                                          int64_t col) {
  Column<C / kWarps> v;
  each_row<C / kWarps>([&](int r, int row) {
    const bool exists = row < chunk.count && col < a.in.layout.value_dim;
    const int64_t at = (chunk.first + row) * a.in.v_stride + head * a.in.layout.value_dim + col;
    v.values[r][0] = exists ? to_float(a.in.v[at]) : 0.f;
  });
  return v;
}

// E of a block's columns from the state before the chunk; the keys and Y are loaded.
template <int C, class T>
__device__ Column<C / kWarps> solve(const Scan<T>& a, const WalkShared<C>& s, const Gates& gates,
                                    const Chunk& chunk, int64_t head, int64_t col) {
  constexpr int kRows = C / kWarps;
  const Layout& layout = a.in.layout;
  Column<kRows> known = {}, e = load_values<C>(a, chunk, head, col), of_chunk = {};
  add_product(s.keys, layout.key_stride, s.state, kSlice, 1, layout.key_stride, known.values);
  each_row<kRows>([&](int r, int row) {
    e.values[r][0] -= gates.from_start[row] * known.values[r][0];
    s.one[row * kSlice + lane_of()] = gates.beta[row] * e.values[r][0];
  });
  __syncthreads();
  add_product(s.scores, C, s.one, kSlice, 1, C, of_chunk.values);
  __syncthreads();
  each_row<kRows>([&](int r, int row) {
    e.values[r][0] -= of_chunk.values[r][0];
    if (a.in.scratch.e != nullptr && row < chunk.count && col < layout.value_dim)
      a.in.scratch.e[layout.gate(chunk.first + row, head) * layout.value_dim + col] =
          e.values[r][0];
  });
  return e;
}

template <int C, StateForm kForm, class T>
__global__ void __launch_bounds__(kDeltaThreads, 1) scan_chunks(Scan<T> a) {
  constexpr int kRows = C / kWarps;
  const Layout& layout = a.in.layout;
  const Scratch& scratch = a.in.scratch;
  const int64_t document = blockIdx.x / layout.value_heads, head = blockIdx.x % layout.value_heads;
  const int64_t key_head = head / layout.group();
  const int64_t first_col = static_cast<int64_t>(blockIdx.y) * kSlice, col = first_col + lane_of();
  const float skip = kForm == StateForm::Sum && a.in.skip != nullptr ? a.in.skip[head] : 0.f;
  const WalkShared<C> s(layout.key_stride);
  for (int64_t i = threadIdx.x; i < layout.key_stride * kSlice; i += kDeltaThreads)
    s.state[i] = 0.f;
  const int64_t chunks = chunks_of(layout, document);
  for (int64_t number = 0; number < chunks; ++number) {
    const Chunk chunk = chunk_at(layout, document, number);
    const int64_t square = layout.square(chunk.slot, head);
    __syncthreads();  // the chunk before is done with what is loaded now
    const Gates gates = load_gates<C>(layout, scratch, a.in.beta, chunk, head, s.gates);
    if constexpr (kForm == StateForm::Delta)
      load_scores<C>(scratch.y + square, layout.chunk, chunk.count, s.scores);
    if (scratch.states != nullptr)
      store_state(layout, s.state, first_col, scratch.states + layout.state(chunk.slot, head));
    Column<kRows> out = {};
    if (a.out != nullptr) {
      load_queries<C, kForm>(a.in, chunk, key_head, s.keys, layout.key_stride);
      __syncthreads();
      add_product(s.keys, layout.key_stride, s.state, kSlice, 1, layout.key_stride, out.values);
      __syncthreads();
    }
    load_keys<C, kForm>(a.in, chunk, key_head, s.keys, layout.key_stride);
    __syncthreads();
    Column<kRows> e;
    if constexpr (kForm == StateForm::Delta)
      e = solve<C>(a, s, gates, chunk, head, col);
    else
      e = load_values<C>(a, chunk, head, col);
    each_row<kRows>([&](int r, int row) {
      const float update = gates.beta[row] * e.values[r][0];
      s.one[row * kSlice + lane_of()] = update;
      s.other[row * kSlice + lane_of()] = gates.to_end[row] * update;
    });
    if (a.out != nullptr) load_scores<C>(scratch.p + square, layout.chunk, chunk.count, s.scores);
    __syncthreads();
    if (a.out != nullptr) {
      each_row<kRows>([&](int r, int row) {
        out.values[r][0] = gates.from_start[row] * out.values[r][0] + skip * e.values[r][0];
      });
      add_product(s.scores, C, s.one, kSlice, 1, C, out.values);
      each_row<kRows>([&](int r, int row) {
        if (row >= chunk.count || col >= layout.value_dim) return;
        a.out[layout.gate(chunk.first + row, head) * layout.value_dim + col] =
            from_float<T>(out.values[r][0]);
      });
    }
    advance_state(s.state, gates.from_start[chunk.count - 1], 1.f, s.keys, layout.key_stride,
                  s.other, chunk.count);
  }
  if (a.final_states == nullptr) return;
  __syncthreads();
  store_state(layout, s.state, first_col, a.final_states + layout.state(document, head));
}

// --- A single step

template <class T>
struct Step {
  const T *q, *k, *v;
  int64_t q_stride, k_stride, v_stride;
  const float *g, *beta, *skip;
  float* states;
  T* out;
  int64_t key_heads, value_heads, key_dim, value_dim;
};

template <StateForm kForm, class T>
__global__ void __launch_bounds__(kDeltaThreads) single_step(Step<T> a) {
  const int64_t number = blockIdx.x;
  const int64_t sequence = number / a.value_heads, head = number % a.value_heads;
  const int64_t key_head = head / (a.value_heads / a.key_heads), dim = a.key_dim;
  float *q = dynamic_shared_floats(), *k = q + dim;
  if (warp_of() < 2) {
    const T* from = warp_of() == 0 ? a.q + sequence * a.q_stride : a.k + sequence * a.k_stride;
    const float factor = warp_of() == 0 ? query_factor(dim) : 1.f;
    const float scale = key_scale<kForm>(from + key_head * dim, dim, factor);
    for (int64_t d = lane_of(); d < dim; d += 32)
      (warp_of() == 0 ? q : k)[d] = to_float(from[key_head * dim + d]) * scale;
  }
  __syncthreads();
  const float decay = expf(a.g[number]), beta = a.beta[number];
  const float skip = a.skip != nullptr ? a.skip[head] : 0.f;
  float* state = a.states + number * dim * a.value_dim;
  for (int64_t j = threadIdx.x; j < a.value_dim; j += kDeltaThreads) {
    const float v = to_float(a.v[sequence * a.v_stride + head * a.value_dim + j]);
    float known = 0.f, sum = skip * v;
    if constexpr (kForm == StateForm::Delta)
      for (int64_t d = 0; d < dim; ++d) known += k[d] * state[d * a.value_dim + j];
    const float update = beta * (v - decay * known);
    for (int64_t d = 0; d < dim; ++d) {
      const float s = decay * state[d * a.value_dim + j] + k[d] * update;
      state[d * a.value_dim + j] = s;
      sum += q[d] * s;
    }
    a.out[number * a.value_dim + j] = from_float<T>(sum);
  }
}

static_assert(4 * scores_floats(64, 128) <= kMostSharedBytes);
static_assert(4 * scores_floats(32, kMostKeyDim) <= kMostSharedBytes);
static_assert(4 * walk_floats(64, 128) <= kMostSharedBytes);
static_assert(4 * walk_floats(32, kMostKeyDim) <= kMostSharedBytes);

template <int C, StateForm kForm, class T>
void launch_chunks(const DeltaRuleForward& args, const Scratch& scratch, const char* scores_name,
                   const char* scan_name, cudaStream_t stream) {
  const DeltaRuleSizes& sizes = args.sizes;
  const Layout layout = layout_of(sizes, args.cu_seqlens);
  const Inputs<T> in = inputs_of<T>(args, scratch);
  if (layout.most_chunks > 0)
    launch(scores_name, chunk_scores<C, kForm, T>,
           {sizes.num_documents * layout.most_chunks, sizes.num_value_heads}, kDeltaThreads,
           4 * scores_floats(C, layout.key_stride), stream, in);
  const Scan<T> scan = {in, static_cast<T*>(args.out), args.final_states};
  launch(scan_name, scan_chunks<C, kForm, T>,
         {sizes.num_documents * sizes.num_value_heads, blocks_for(sizes.value_dim, kSlice)},
         kDeltaThreads, 4 * walk_floats(C, layout.key_stride), stream, scan);
}

}  // namespace

void check_sizes(const DeltaRuleSizes& sizes) {
  SNUG_CHECK(sizes.key_dim >= 1 && sizes.key_dim <= kMostKeyDim && sizes.chunk >= 1,
             "delta rule: keys of {} elements in chunks of {} tokens; on cuda keys have {} at most",
             sizes.key_dim, sizes.chunk, kMostKeyDim);
}

void launch_scan(const DeltaRuleForward& args, const Scratch& scratch, const char* scores_name,
                 const char* scan_name, cudaStream_t stream) {
  with_chunks(args.sizes, [&](auto tokens, auto form, auto type) {
    launch_chunks<decltype(tokens)::value, decltype(form)::value, decltype(type)>(
        args, scratch, scores_name, scan_name, stream);
  });
}

}  // namespace delta

int64_t delta_rule_forward_workspace_bytes(const DeltaRuleForward& args) {
  return delta::workspace_bytes(args.sizes, delta::Pass::Forward);
}

void delta_rule_forward(const DeltaRuleForward& args, void* workspace, cudaStream_t stream) {
  delta::check_sizes(args.sizes);
  if (args.sizes.num_documents == 0) return;
  int64_t bytes = 0;
  const delta::Scratch scratch = delta::carve(args.sizes, delta::Pass::Forward, workspace, &bytes);
  delta::launch_scan(args, scratch, "delta_rule_forward/chunk_scores",
                     "delta_rule_forward/scan_chunks", stream);
}

void delta_rule_step(const DeltaRuleStep& args, cudaStream_t stream) {
  const int64_t blocks = args.num_sequences * args.num_value_heads;
  if (blocks == 0) return;
  delta::with_form(args.form, args.type, [&](auto form, auto type) {
    using T = decltype(type);
    const delta::Step<T> step = {static_cast<const T*>(args.q),
                                 static_cast<const T*>(args.k),
                                 static_cast<const T*>(args.v),
                                 args.q_stride,
                                 args.k_stride,
                                 args.v_stride,
                                 args.g,
                                 args.beta,
                                 args.skip,
                                 args.states,
                                 static_cast<T*>(args.out),
                                 args.num_key_heads,
                                 args.num_value_heads,
                                 args.key_dim,
                                 args.value_dim};
    launch("delta_rule_step", delta::single_step<decltype(form)::value, T>, blocks,
           delta::kDeltaThreads, 8 * args.key_dim, stream, step);
  });
}

}  // namespace snug::kernels::cuda
