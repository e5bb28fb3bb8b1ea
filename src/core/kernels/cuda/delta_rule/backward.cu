// Four launches: the forward's two, for the scores, E and the states; then a block for 32 columns
// of a head's states walks the document's chunks from the last, with the gradient of its part of
// the state in shared memory; then, when Z and those gradients are known, all chunks at once, a
// block for each key head, whose value heads add to the gradients of q and k in their order.
//
// Bytes of a chunk of C tokens and a value head, T those of a type; with those of shared memory for
// keys of 128:
//   scan_back: reads C (2 dk + dv) T + 8 C C, writes C dv T + 4 (C + dk) dv; shares 82688
//   chunk_gradients: reads C (2 dk + dv) T + 8 (C + dk) dv + 8 C C, writes 2 C dk T; shares 92416
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/delta_rule/chunks.cuh"
#include "core/kernels/cuda/delta_rule/launches.h"

namespace snug::kernels::cuda {
namespace delta {
namespace {

// --- The states' gradients, and Z

template <class T>
struct Back {
  Inputs<T> in;
  const T* d_out;
  T* dv;
};

constexpr int64_t back_floats(int64_t tokens, int64_t key_stride) {
  return (3 + key_stride + tokens + 2 * kSlice) * tokens + key_stride * kSlice;
}

template <int C>
struct BackShared {
  __device__ explicit BackShared(int64_t key_stride)
      : keys(dynamic_shared_floats()),
        scores(keys + C * key_stride),
        d_state(scores + C * C),
        d_out(d_state + key_stride * kSlice),
        scaled(d_out + C * kSlice),
        gates(scaled + C * kSlice) {}
  float *keys, *scores, *d_state, *d_out, *scaled, *gates;
};

// Z of a block's columns; the keys, P and dO are loaded. Leaves exp(b) dO and exp(b) dR.
template <int C, class T>
__device__ void solve_back(const Back<T>& a, const BackShared<C>& s, const Gates& gates,
                           const Chunk& chunk, int64_t head, int64_t col) {
  constexpr int kRows = C / kWarps;
  const Layout& layout = a.in.layout;
  const int lane = lane_of(), first_row = kRows * warp_of();
  float z[kRows][1] = {}, known[kRows][1] = {};
  add_product(s.keys, layout.key_stride, s.d_state, kSlice, 1, layout.key_stride, z);
#pragma unroll
  for (int r = 0; r < kRows; ++r) z[r][0] *= gates.to_end[first_row + r];
  add_transposed(s.scores, C, s.d_out, kSlice, C, z);
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    s.scaled[(first_row + r) * kSlice + lane] = gates.beta[first_row + r] * z[r][0];
  __syncthreads();
  load_scores<C>(a.in.scratch.y + layout.square(chunk.slot, head), layout.chunk, chunk.count,
                 s.scores);
  __syncthreads();
  add_transposed(s.scores, C, s.scaled, kSlice, C, known);
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = first_row + r;
    const float of_token = z[r][0] - known[r][0], dr = gates.beta[row] * of_token;
    s.scaled[row * kSlice + lane] = gates.from_start[row] * dr;
    s.d_out[row * kSlice + lane] *= gates.from_start[row];
    if (row >= chunk.count || col >= layout.value_dim) continue;
    const int64_t at = layout.gate(chunk.first + row, head) * layout.value_dim + col;
    a.in.scratch.z[at] = of_token;
    a.dv[at] = from_float<T>(dr);
  }
}

template <int C, class T>
__global__ void __launch_bounds__(kDeltaThreads) scan_back(Back<T> a) {
  const Layout& layout = a.in.layout;
  const Scratch& scratch = a.in.scratch;
  const int64_t document = blockIdx.x / layout.value_heads, head = blockIdx.x % layout.value_heads;
  const int64_t key_head = head / layout.group(), dim = layout.key_dim;
  const int64_t first_col = static_cast<int64_t>(blockIdx.y) * kSlice, col = first_col + lane_of();
  const BackShared<C> s(layout.key_stride);
  for (int64_t i = threadIdx.x; i < layout.key_stride * kSlice; i += kDeltaThreads)
    s.d_state[i] = 0.f;
  for (int64_t number = chunks_of(layout, document) - 1; number >= 0; --number) {
    const Chunk chunk = chunk_at(layout, document, number);
    __syncthreads();  // the chunk behind is done with what is loaded now
    store_state(layout, s.d_state, first_col, scratch.d_states + layout.state(chunk.slot, head));
    const Gates gates = load_gates<C>(layout, scratch, a.in.beta, chunk, head, s.gates);
    load_scores<C>(scratch.p + layout.square(chunk.slot, head), layout.chunk, chunk.count,
                   s.scores);
    load_unit_rows<C>(a.in.k + chunk.first * a.in.k_stride + key_head * dim, a.in.k_stride, dim,
                      chunk.count, 1.f, s.keys, layout.key_stride);
    load_slice(a.d_out + layout.gate(chunk.first, head) * layout.value_dim,
               layout.value_heads * layout.value_dim, first_col, layout.value_dim, chunk.count, C,
               nullptr, s.d_out, kSlice);
    __syncthreads();
    solve_back(a, s, gates, chunk, head, col);
    __syncthreads();
    advance_state(s.d_state, gates.from_start[chunk.count - 1], -1.f, s.keys, layout.key_stride,
                  s.scaled, chunk.count);
    __syncthreads();
    load_unit_rows<C>(a.in.q + chunk.first * a.in.q_stride + key_head * dim, a.in.q_stride, dim,
                      chunk.count, 1.f / sqrtf(static_cast<float>(dim)), s.keys, layout.key_stride);
    __syncthreads();
    advance_state(s.d_state, 1.f, 1.f, s.keys, layout.key_stride, s.d_out, chunk.count);
  }
}

// --- The other gradients

template <class T>
struct Gradients {
  Inputs<T> in;
  const T* d_out;
  T *dq, *dk;
  float *dg, *dbeta;
};

// A block's tile of (C, kKeys), with keys of kKeys elements at most.
template <int C>
struct Tile {
  static constexpr int kRows = C / kWarps, kCols = C == 64 ? 4 : 8, kKeys = 32 * kCols;
  static constexpr int kScoreCols = C / 32;
  static constexpr int kStride =
      kSlice + 1;  // of right operands that are read by rows: no bank twice
  static constexpr int64_t kFloats =
      C * kKeys + 2 * C * C + C * kSlice + kKeys * kStride + (3 + 2 + 2) * C;
};

template <int C>
struct GradientShared {
  __device__ GradientShared()
      : keys(dynamic_shared_floats()),
        dp(keys + C * Tile<C>::kKeys),
        dx(dp + C * C),
        left(dx + C * C),
        right(left + C * kSlice),
        gates(right + Tile<C>::kKeys * Tile<C>::kStride),
        high(gates + 3 * C),
        low(high + C),
        db(low + C),
        late(db + C) {}
  float *keys, *dp, *dx, *left, *right, *gates, *high, *low, *db, *late;
};

// A value head of the block's chunk.
struct Place {
  Chunk chunk;
  int64_t head;
};

// What a product reads of (N, Hv, dv) and of (slots, Hv, dk, dv) floats.
template <class T>
__device__ const T* values_of(const Layout& layout, const T* values, const Place& place) {
  return values + layout.gate(place.chunk.first, place.head) * layout.value_dim;
}

// sums += values (times their factors) right', over all columns of values; `right` is (rows, dv).
template <int C, int kCols, class T>
__device__ void add_rows_by_rows(const Layout& layout, const GradientShared<C>& s, int count,
                                 const T* values, const float* factors, const float* right,
                                 int64_t right_stride, int64_t right_count,
                                 const float* right_factors, float (&sums)[Tile<C>::kRows][kCols]) {
  for (int64_t first = 0; first < layout.value_dim; first += kSlice) {
    __syncthreads();  // what was loaded before has been read
    load_slice(values, layout.value_heads * layout.value_dim, first, layout.value_dim, count, C,
               factors, s.left, kSlice);
    load_slice(right, right_stride, first, layout.value_dim, right_count, 32 * kCols, right_factors,
               s.right, Tile<C>::kStride);
    __syncthreads();
    add_product(s.left, kSlice, s.right, 1, Tile<C>::kStride, kSlice, sums);
  }
}

// D * dP and D * dX in shared memory, and what P and X say of db.
template <int C, class T>
__device__ void compute_scores(const Gradients<T>& a, const GradientShared<C>& s,
                               const Gates& gates, const Place& place) {
  using Of = Tile<C>;
  const Layout& layout = a.in.layout;
  const Scratch& scratch = a.in.scratch;
  const int count = place.chunk.count;
  const int64_t row_stride = layout.value_heads * layout.value_dim;
  const float* e = values_of(layout, scratch.e, place);
  float dp[Of::kRows][Of::kScoreCols] = {}, dx[Of::kRows][Of::kScoreCols] = {};
  add_rows_by_rows(layout, s, count, values_of(layout, a.d_out, place), nullptr, e, row_stride,
                   count, gates.beta, dp);
  add_rows_by_rows(layout, s, count, values_of(layout, scratch.z, place), gates.beta, e, row_stride,
                   count, gates.beta, dx);
  const int64_t square = layout.square(place.chunk.slot, place.head);
#pragma unroll
  for (int r = 0; r < Of::kRows; ++r) {
    const int row = Of::kRows * warp_of() + r;
    float of_row = 0.f;
#pragma unroll
    for (int m = 0; m < Of::kScoreCols; ++m) {
      const int col = lane_of() + 32 * m;
      float of_both = 0.f;
      if (col < row && row < count) {
        const int64_t at = square + row * layout.chunk + col;
        of_both = scratch.p[at] * dp[r][m] - scratch.x[at] * dx[r][m];
      }
      s.dp[row * C + col] = of_both;
      of_row += of_both;
    }
    of_row = warp_sum(of_row);
    if (lane_of() == 0) s.db[row] = of_row;
  }
  __syncthreads();
  for (int col = static_cast<int>(threadIdx.x); col < C; col += kDeltaThreads) {
    float of_column = 0.f;
    for (int row = col + 1; row < count; ++row) of_column += s.dp[row * C + col];
    s.db[col] -= of_column;
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < Of::kRows; ++r) {
#pragma unroll
    for (int m = 0; m < Of::kScoreCols; ++m) {
      const int row = Of::kRows * warp_of() + r, col = lane_of() + 32 * m;
      const bool is_before = col <= row && row < count;
      const float decay =
          is_before ? expf((s.high[row] - s.high[col]) + (s.low[row] - s.low[col])) : 0.f;
      s.dp[row * C + col] = decay * dp[r][m];
      s.dx[row * C + col] = col < row ? -decay * dx[r][m] : 0.f;
    }
  }
}

// sums += sign * factors * (values states'), row by row; each row's product with that of the keys
// goes to `dots`.
template <int C, class T>
__device__ void add_through_states(const Layout& layout, const GradientShared<C>& s,
                                   const Place& place, const T* values, const float* value_factors,
                                   const float* states, const float* factors, float sign,
                                   float (&sums)[Tile<C>::kRows][Tile<C>::kCols], float* dots) {
  using Of = Tile<C>;
  float products[Of::kRows][Of::kCols] = {};
  add_rows_by_rows(layout, s, place.chunk.count, values_of(layout, values, place), value_factors,
                   states + layout.state(place.chunk.slot, place.head), layout.value_dim,
                   layout.key_dim, nullptr, products);
#pragma unroll
  for (int r = 0; r < Of::kRows; ++r) {
    const int row = Of::kRows * warp_of() + r;
    float dot = 0.f;
#pragma unroll
    for (int m = 0; m < Of::kCols; ++m) {
      const float share = sign * factors[row] * products[r][m];
      sums[r][m] += share;
      dot += share * s.keys[row * Of::kKeys + lane_of() + 32 * m];
    }
    dot = warp_sum(dot);
    if (lane_of() == 0) dots[row] = dot;
  }
}

// What the decay of the state before the chunk has of its product with the gradient behind it.
__device__ inline float state_dot(const Layout& layout, const Scratch& scratch, const Place& place,
                                  float decay) {
  const int64_t begin = layout.state(place.chunk.slot, place.head);
  float sum = 0.f;
  for (int64_t i = threadIdx.x; i < layout.key_dim * layout.value_dim; i += kDeltaThreads)
    sum += scratch.states[begin + i] * scratch.d_states[begin + i];
  return reduce_block(decay * sum, 0.f, Add{});
}

// dbeta_i = Z_i · E_i
template <class T>
__device__ void store_beta_gradients(const Gradients<T>& a, const Place& place) {
  const Layout& layout = a.in.layout;
  for (int row = warp_of(); row < place.chunk.count; row += kWarps) {
    const int64_t token = layout.gate(place.chunk.first + row, place.head);
    float sum = 0.f;
    for (int64_t j = lane_of(); j < layout.value_dim; j += 32) {
      const int64_t at = token * layout.value_dim + j;
      sum += a.in.scratch.z[at] * a.in.scratch.e[at];
    }
    sum = warp_sum(sum);
    if (lane_of() == 0) a.dbeta[token] = sum;
  }
}

// One thread's: `late` says what of db the chunk's end takes from its tokens.
template <int C, class T>
__device__ void store_decay_gradients(const Gradients<T>& a, const GradientShared<C>& s,
                                      const Place& place, float of_state) {
  double sum = of_state;
  for (int i = 0; i < place.chunk.count; ++i) sum += s.late[i];
  for (int i = place.chunk.count - 1; i >= 0; --i) {
    sum += s.db[i] - s.late[i];
    a.dg[a.in.layout.gate(place.chunk.first + i, place.head)] = static_cast<float>(sum);
  }
}

// Adds what `dots` says to db, where each row is a warp's own.
template <int C>
__device__ void add_dots(const GradientShared<C>& s) {
  const int row = Tile<C>::kRows * warp_of() + lane_of();
  __syncwarp();
  if (lane_of() < Tile<C>::kRows) s.db[row] += s.late[row];
}

template <int C, class T>
__device__ void load_head(const Gradients<T>& a, const GradientShared<C>& s, const Place& place) {
  const Layout& layout = a.in.layout;
  for (int i = static_cast<int>(threadIdx.x); i < place.chunk.count; i += kDeltaThreads) {
    const int64_t at = layout.gate(place.chunk.first + i, place.head);
    s.high[i] = sum_at(a.in.scratch, at, 0);
    s.low[i] = sum_at(a.in.scratch, at, 1);
  }
}

// The gradient of a row of length `factor`: dx = factor r (dy - n (dy · n)) with n = x r.
template <int C, class T>
__device__ void store_unit_gradients(const Layout& layout, const Chunk& chunk, const T* x,
                                     int64_t x_stride, float factor, int64_t key_head,
                                     const float (&dy)[Tile<C>::kRows][Tile<C>::kCols], T* dx) {
  using Of = Tile<C>;
  const int64_t dim = layout.key_dim;
#pragma unroll
  for (int r = 0; r < Of::kRows; ++r) {
    const int64_t row = Of::kRows * warp_of() + r;
    if (row >= chunk.count) continue;
    const T* from = x + (chunk.first + row) * x_stride + key_head * dim;
    T* to = dx + ((chunk.first + row) * layout.key_heads + key_head) * dim;
    const float scale = inverse_length(from, dim);
    float dot = 0.f;
#pragma unroll
    for (int m = 0; m < Of::kCols; ++m) {
      const int64_t d = lane_of() + 32 * m;
      if (d < dim) dot += dy[r][m] * to_float(from[d]);
    }
    const float along = warp_sum(dot) * scale * scale;
#pragma unroll
    for (int m = 0; m < Of::kCols; ++m) {
      const int64_t d = lane_of() + 32 * m;
      if (d < dim) to[d] = from_float<T>(factor * scale * (dy[r][m] - to_float(from[d]) * along));
    }
  }
}

template <int C, class T>
__global__ void __launch_bounds__(kDeltaThreads, 1) chunk_gradients(Gradients<T> a) {
  using Of = Tile<C>;
  const Layout& layout = a.in.layout;
  const Scratch& scratch = a.in.scratch;
  const int64_t document = blockIdx.x / layout.most_chunks,
                number = blockIdx.x % layout.most_chunks;
  const int64_t key_head = blockIdx.y, dim = layout.key_dim;
  if (number >= chunks_of(layout, document)) return;
  const Chunk chunk = chunk_at(layout, document, number);
  const GradientShared<C> s;
  const float query_factor = 1.f / sqrtf(static_cast<float>(dim));
  float dq[Of::kRows][Of::kCols] = {}, dk[Of::kRows][Of::kCols] = {};
  for (int64_t i = 0; i < layout.group(); ++i) {
    const Place place = {chunk, key_head * layout.group() + i};
    const Gates gates = load_gates<C>(layout, scratch, a.in.beta, chunk, place.head, s.gates);
    load_head(a, s, place);
    compute_scores(a, s, gates, place);
    load_unit_rows<C>(a.in.q + chunk.first * a.in.q_stride + key_head * dim, a.in.q_stride, dim,
                      chunk.count, query_factor, s.keys, Of::kKeys);
    add_through_states(layout, s, place, a.d_out, static_cast<const float*>(nullptr),
                       scratch.states, gates.from_start, 1.f, dq, s.late);
    add_dots(s);
    add_transposed(s.dp, C, s.keys, Of::kKeys, C, dk);
    __syncthreads();
    load_unit_rows<C>(a.in.k + chunk.first * a.in.k_stride + key_head * dim, a.in.k_stride, dim,
                      chunk.count, 1.f, s.keys, Of::kKeys);
    add_through_states(layout, s, place, scratch.z, gates.beta, scratch.states, gates.from_start,
                       -1.f, dk, s.late);
    add_dots(s);
    add_through_states(layout, s, place, scratch.e, gates.beta, scratch.d_states, gates.to_end, 1.f,
                       dk, s.late);
    add_product(s.dp, C, s.keys, Of::kKeys, 1, C, dq);
    add_product(s.dx, C, s.keys, Of::kKeys, 1, C, dk);
    add_transposed(s.dx, C, s.keys, Of::kKeys, C, dk);
    store_beta_gradients(a, place);
    // The sum over the block is a barrier: behind it all warps' db and late are there, and nobody
    // reads the gates any more.
    const float of_state = state_dot(layout, scratch, place, gates.from_start[chunk.count - 1]);
    if (threadIdx.x == 0) store_decay_gradients(a, s, place, of_state);
  }
  store_unit_gradients<C>(layout, chunk, a.in.q, a.in.q_stride, query_factor, key_head, dq, a.dq);
  store_unit_gradients<C>(layout, chunk, a.in.k, a.in.k_stride, 1.f, key_head, dk, a.dk);
}

template <int C, class T>
void launch_gradients(const DeltaRuleBackward& args, const Scratch& scratch, cudaStream_t stream) {
  const DeltaRuleSizes& sizes = args.forward.sizes;
  const Layout layout = layout_of(sizes, args.forward.cu_seqlens);
  const Inputs<T> in = inputs_of<T>(args.forward, scratch);
  const auto* d_out = static_cast<const T*>(args.d_out);
  const Back<T> back = {in, d_out, static_cast<T*>(args.dv)};
  launch("delta_rule_backward/scan_back", scan_back<C, T>,
         {sizes.num_documents * sizes.num_value_heads, blocks_for(sizes.value_dim, kSlice)},
         kDeltaThreads, 4 * back_floats(C, layout.key_stride), stream, back);
  const Gradients<T> gradients = {
      in, d_out, static_cast<T*>(args.dq), static_cast<T*>(args.dk), args.dg, args.dbeta};
  launch("delta_rule_backward/chunk_gradients", chunk_gradients<C, T>,
         {sizes.num_documents * layout.most_chunks, sizes.num_key_heads}, kDeltaThreads,
         4 * Tile<C>::kFloats, stream, gradients);
}

static_assert(4 * Tile<64>::kFloats + kReductionBytes <= kMostSharedBytes);
static_assert(4 * Tile<32>::kFloats + kReductionBytes <= kMostSharedBytes);
static_assert(4 * back_floats(64, 128) <= kMostSharedBytes);
static_assert(4 * back_floats(32, kMostKeyDim) <= kMostSharedBytes);

}  // namespace
}  // namespace delta

int64_t delta_rule_backward_workspace_bytes(const DeltaRuleForward& args) {
  return delta::workspace_bytes(args.sizes, delta::Pass::Backward);
}

void delta_rule_backward(const DeltaRuleBackward& args, void* workspace, cudaStream_t stream) {
  DeltaRuleForward forward = args.forward;
  forward.out = nullptr;
  forward.final_states = nullptr;
  delta::check_sizes(forward.sizes);
  if (forward.sizes.num_tokens == 0) return;
  int64_t bytes = 0;
  const delta::Scratch scratch =
      delta::carve(forward.sizes, delta::Pass::Backward, workspace, &bytes);
  delta::launch_scan(forward, scratch, "delta_rule_backward/chunk_scores",
                     "delta_rule_backward/scan_chunks", stream);
  delta::with_chunks(forward.sizes, [&](auto tokens, auto type) {
    delta::launch_gradients<decltype(tokens)::value, decltype(type)>(args, scratch, stream);
  });
}

}  // namespace snug::kernels::cuda
