// Four launches: the forward's two, for the scores, E and the states; then a block for 32 columns
// of a head's states walks the document's chunks from the last, with the gradient of its part of
// the state in shared memory; then, when Z and those gradients are known, all chunks at once, a
// block for each key head, whose value heads add to the gradients of q and k in their order.
//
// Bytes of a chunk of C tokens and a value head, T those of a type; with those of shared memory for
// keys of 128; a sum has no 4 C C of Y nor 4 C C of X, and reads V where E stands:
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

// Z of a block's columns and with it dV; the keys, P and dO are loaded. Leaves exp(b) dO, and of
// the delta rule exp(b) dR.
template <int C, StateForm kForm, class T>
__device__ void solve_back(const Back<T>& a, const WalkShared<C>& s, const Gates& gates,
                           const Chunk& chunk, int64_t head, int64_t col) {
  constexpr int kRows = C / kWarps;
  const Layout& layout = a.in.layout;
  const int lane = lane_of(), first_row = kRows * warp_of();
  float *d_out = s.one, *scaled = s.other;
  const float skip = kForm == StateForm::Sum && a.in.skip != nullptr ? a.in.skip[head] : 0.f;
  float z[kRows][1] = {}, known[kRows][1] = {};
  add_product(s.keys, layout.key_stride, s.state, kSlice, 1, layout.key_stride, z);
#pragma unroll
  for (int r = 0; r < kRows; ++r) z[r][0] *= gates.to_end[first_row + r];
  add_transposed(s.scores, C, d_out, kSlice, C, z);
  if constexpr (kForm == StateForm::Delta) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      scaled[(first_row + r) * kSlice + lane] = gates.beta[first_row + r] * z[r][0];
    __syncthreads();
    load_scores<C>(a.in.scratch.y + layout.square(chunk.slot, head), layout.chunk, chunk.count,
                   s.scores);
    __syncthreads();
    add_transposed(s.scores, C, scaled, kSlice, C, known);
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = first_row + r;
    const float of_token = z[r][0] - known[r][0], dr = gates.beta[row] * of_token;
    float& of_out = d_out[row * kSlice + lane];
    const float of_value = dr + skip * of_out;
    scaled[row * kSlice + lane] = gates.from_start[row] * dr;
    of_out *= gates.from_start[row];
    if (row >= chunk.count || col >= layout.value_dim) continue;
    const int64_t at = layout.gate(chunk.first + row, head) * layout.value_dim + col;
    a.in.scratch.z[at] = of_token;
    a.dv[at] = from_float<T>(of_value);
  }
}

template <int C, StateForm kForm, class T>
__global__ void __launch_bounds__(kDeltaThreads, 1) scan_back(Back<T> a) {
  const Layout& layout = a.in.layout;
  const Scratch& scratch = a.in.scratch;
  const int64_t document = blockIdx.x / layout.value_heads, head = blockIdx.x % layout.value_heads;
  const int64_t key_head = head / layout.group(), stride = layout.key_stride;
  const int64_t first_col = static_cast<int64_t>(blockIdx.y) * kSlice, col = first_col + lane_of();
  const WalkShared<C> s(stride);
  for (int64_t i = threadIdx.x; i < stride * kSlice; i += kDeltaThreads) s.state[i] = 0.f;
  for (int64_t number = chunks_of(layout, document) - 1; number >= 0; --number) {
    const Chunk chunk = chunk_at(layout, document, number);
    __syncthreads();  // the chunk behind is done with what is loaded now
    store_state(layout, s.state, first_col, scratch.d_states + layout.state(chunk.slot, head));
    const Gates gates = load_gates<C>(layout, scratch, a.in.beta, chunk, head, s.gates);
    load_scores<C>(scratch.p + layout.square(chunk.slot, head), layout.chunk, chunk.count,
                   s.scores);
    load_keys<C, kForm>(a.in, chunk, key_head, s.keys, stride);
    load_slice(a.d_out + layout.gate(chunk.first, head) * layout.value_dim,
               layout.value_heads * layout.value_dim, first_col, layout.value_dim, chunk.count, C,
               nullptr, s.one, kSlice);
    __syncthreads();
    solve_back<C, kForm>(a, s, gates, chunk, head, col);
    __syncthreads();
    float decay = gates.from_start[chunk.count - 1];
    if constexpr (kForm == StateForm::Delta) {
      advance_state(s.state, decay, -1.f, s.keys, stride, s.other, chunk.count);
      decay = 1.f;
      __syncthreads();
    }
    load_queries<C, kForm>(a.in, chunk, key_head, s.keys, stride);
    __syncthreads();
    advance_state(s.state, decay, 1.f, s.keys, stride, s.one, chunk.count);
  }
}

// --- The other gradients

template <class T>
struct Gradients {
  Inputs<T> in;
  const T* d_out;
  T *dq, *dk;
  float *dg, *dbeta, *dskip;
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

// Rows of dv elements.
template <class T>
struct Rows {
  const T* data;
  int64_t stride;
};
// Those of the place's tokens among (N, Hv, dv).
template <class T>
__device__ Rows<T> values_of(const Layout& layout, const T* values, const Place& place) {
  return {values + layout.gate(place.chunk.first, place.head) * layout.value_dim,
          layout.value_heads * layout.value_dim};
}
template <class T>
__device__ Rows<T> v_of(const Inputs<T>& in, const Place& place) {
  return {in.v + place.chunk.first * in.v_stride + place.head * in.layout.value_dim, in.v_stride};
}
template <StateForm kForm, class T>
__device__ auto e_of(const Inputs<T>& in, const Place& place) {
  if constexpr (kForm == StateForm::Delta)
    return values_of<float>(in.layout, in.scratch.e, place);
  else
    return v_of(in, place);
}

// sums += values (times their factors) right', over all columns of values; `right` has rows as
// well.
template <int C, int kCols, class T, class U>
__device__ void add_rows_by_rows(const Layout& layout, const GradientShared<C>& s, int count,
                                 const Rows<T>& values, const float* factors, const Rows<U>& right,
                                 int64_t right_count, const float* right_factors,
                                 float (&sums)[Tile<C>::kRows][kCols]) {
  for (int64_t first = 0; first < layout.value_dim; first += kSlice) {
    __syncthreads();  // what was loaded before has been read
    load_slice(values.data, values.stride, first, layout.value_dim, count, C, factors, s.left,
               kSlice);
    load_slice(right.data, right.stride, first, layout.value_dim, right_count, 32 * kCols,
               right_factors, s.right, Tile<C>::kStride);
    __syncthreads();
    add_product(s.left, kSlice, s.right, 1, Tile<C>::kStride, kSlice, sums);
  }
}

// D * dP and D * dX in shared memory, and what P and X say of db.
template <int C, StateForm kForm, class T>
__device__ void compute_scores(const Gradients<T>& a, const GradientShared<C>& s,
                               const Gates& gates, const Place& place) {
  using Of = Tile<C>;
  const Layout& layout = a.in.layout;
  const Scratch& scratch = a.in.scratch;
  const int count = place.chunk.count;
  constexpr bool kSolves = kForm == StateForm::Delta;
  const auto e = e_of<kForm>(a.in, place);
  float dp[Of::kRows][Of::kScoreCols] = {}, dx[Of::kRows][Of::kScoreCols] = {};
  add_rows_by_rows(layout, s, count, values_of(layout, a.d_out, place), nullptr, e, count,
                   gates.beta, dp);
  if constexpr (kSolves)
    add_rows_by_rows(layout, s, count, values_of<float>(layout, scratch.z, place), gates.beta, e,
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
        of_both = scratch.p[at] * dp[r][m];
        if constexpr (kSolves) of_both -= scratch.x[at] * dx[r][m];
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
      if constexpr (kSolves) s.dx[row * C + col] = col < row ? -decay * dx[r][m] : 0.f;
    }
  }
}

// sums += sign * factors * (values states'), row by row; each row's product with that of the keys
// goes to `dots`.
template <int C, class T>
__device__ void add_through_states(const Layout& layout, const GradientShared<C>& s,
                                   const Place& place, const Rows<T>& values,
                                   const float* value_factors, const float* states,
                                   const float* factors, float sign,
                                   float (&sums)[Tile<C>::kRows][Tile<C>::kCols], float* dots) {
  using Of = Tile<C>;
  float products[Of::kRows][Of::kCols] = {};
  const Rows<float> rows = {states + layout.state(place.chunk.slot, place.head), layout.value_dim};
  add_rows_by_rows(layout, s, place.chunk.count, values, value_factors, rows, layout.key_dim,
                   nullptr, products);
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

// x_i · y_i for each token.
template <class T, class U>
__device__ void store_dots(const Layout& layout, const Place& place, const Rows<T>& x,
                           const Rows<U>& y, float* to) {
  for (int row = warp_of(); row < place.chunk.count; row += kWarps) {
    float sum = 0.f;
    for (int64_t j = lane_of(); j < layout.value_dim; j += 32)
      sum += to_float(x.data[row * x.stride + j]) * to_float(y.data[row * y.stride + j]);
    sum = warp_sum(sum);
    if (lane_of() == 0) to[layout.gate(place.chunk.first + row, place.head)] = sum;
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

// The gradient of a row of length `factor`: dx = factor r (dy - n (dy · n)) with n = x r. Of a sum
// dx = dy.
template <int C, StateForm kForm, class T>
__device__ void store_key_gradients(const Layout& layout, const Chunk& chunk, const T* x,
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
    float scale = 1.f, along = 0.f;
    if constexpr (kForm == StateForm::Delta) {
      const float length = inverse_length(from, dim);
      float dot = 0.f;
#pragma unroll
      for (int m = 0; m < Of::kCols; ++m) {
        const int64_t d = lane_of() + 32 * m;
        if (d < dim) dot += dy[r][m] * to_float(from[d]);
      }
      scale = factor * length, along = warp_sum(dot) * length * length;
    }
#pragma unroll
    for (int m = 0; m < Of::kCols; ++m) {
      const int64_t d = lane_of() + 32 * m;
      if (d < dim) to[d] = from_float<T>(scale * (dy[r][m] - to_float(from[d]) * along));
    }
  }
}

template <int C, StateForm kForm, class T>
__global__ void __launch_bounds__(kDeltaThreads, 1) chunk_gradients(Gradients<T> a) {
  using Of = Tile<C>;
  constexpr bool kSolves = kForm == StateForm::Delta;
  const Layout& layout = a.in.layout;
  const Scratch& scratch = a.in.scratch;
  const int64_t document = blockIdx.x / layout.most_chunks,
                number = blockIdx.x % layout.most_chunks;
  const int64_t key_head = blockIdx.y;
  if (number >= chunks_of(layout, document)) return;
  const Chunk chunk = chunk_at(layout, document, number);
  const GradientShared<C> s;
  float dq[Of::kRows][Of::kCols] = {}, dk[Of::kRows][Of::kCols] = {};
  for (int64_t i = 0; i < layout.group(); ++i) {
    const Place place = {chunk, key_head * layout.group() + i};
    const auto d_out = values_of(layout, a.d_out, place);
    const auto z = values_of<float>(layout, scratch.z, place);
    const auto e = e_of<kForm>(a.in, place);
    const Gates gates = load_gates<C>(layout, scratch, a.in.beta, chunk, place.head, s.gates);
    load_head(a, s, place);
    compute_scores<C, kForm>(a, s, gates, place);
    load_queries<C, kForm>(a.in, chunk, key_head, s.keys, Of::kKeys);
    add_through_states(layout, s, place, d_out, nullptr, scratch.states, gates.from_start, 1.f, dq,
                       s.late);
    add_dots(s);
    add_transposed(s.dp, C, s.keys, Of::kKeys, C, dk);
    __syncthreads();
    load_keys<C, kForm>(a.in, chunk, key_head, s.keys, Of::kKeys);
    if constexpr (kSolves) {
      add_through_states(layout, s, place, z, gates.beta, scratch.states, gates.from_start, -1.f,
                         dk, s.late);
      add_dots(s);
    }
    add_through_states(layout, s, place, e, gates.beta, scratch.d_states, gates.to_end, 1.f, dk,
                       s.late);
    add_product(s.dp, C, s.keys, Of::kKeys, 1, C, dq);
    if constexpr (kSolves) {
      add_product(s.dx, C, s.keys, Of::kKeys, 1, C, dk);
      add_transposed(s.dx, C, s.keys, Of::kKeys, C, dk);
    }
    store_dots(layout, place, z, e, a.dbeta);
    if (a.in.skip != nullptr) store_dots(layout, place, d_out, v_of(a.in, place), a.dskip);
    // The sum over the block is a barrier: behind it all warps' db and late are there, and nobody
    // reads the gates any more.
    const float of_state = state_dot(layout, scratch, place, gates.from_start[chunk.count - 1]);
    if (threadIdx.x == 0) store_decay_gradients(a, s, place, of_state);
  }
  store_key_gradients<C, kForm>(layout, chunk, a.in.q, a.in.q_stride, query_factor(layout.key_dim),
                                key_head, dq, a.dq);
  store_key_gradients<C, kForm>(layout, chunk, a.in.k, a.in.k_stride, 1.f, key_head, dk, a.dk);
}

template <int C, StateForm kForm, class T>
void launch_gradients(const DeltaRuleBackward& args, const Scratch& scratch, cudaStream_t stream) {
  const DeltaRuleSizes& sizes = args.forward.sizes;
  const Layout layout = layout_of(sizes, args.forward.cu_seqlens);
  const Inputs<T> in = inputs_of<T>(args.forward, scratch);
  const auto* d_out = static_cast<const T*>(args.d_out);
  const Back<T> back = {in, d_out, static_cast<T*>(args.dv)};
  launch("delta_rule_backward/scan_back", scan_back<C, kForm, T>,
         {sizes.num_documents * sizes.num_value_heads, blocks_for(sizes.value_dim, kSlice)},
         kDeltaThreads, 4 * walk_floats(C, layout.key_stride), stream, back);
  const Gradients<T> gradients = {
      in,         d_out,     static_cast<T*>(args.dq), static_cast<T*>(args.dk), args.dg,
      args.dbeta, args.dskip};
  launch("delta_rule_backward/chunk_gradients", chunk_gradients<C, kForm, T>,
         {sizes.num_documents * layout.most_chunks, sizes.num_key_heads}, kDeltaThreads,
         4 * Tile<C>::kFloats, stream, gradients);
}

static_assert(4 * Tile<64>::kFloats + kReductionBytes <= kMostSharedBytes);
static_assert(4 * Tile<32>::kFloats + kReductionBytes <= kMostSharedBytes);

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
  delta::with_chunks(forward.sizes, [&](auto tokens, auto form, auto type) {
    delta::launch_gradients<decltype(tokens)::value, decltype(form)::value, decltype(type)>(
        args, scratch, stream);
  });
}

}  // namespace snug::kernels::cuda
