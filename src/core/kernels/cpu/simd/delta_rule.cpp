// What the gated delta rule does to a chunk between its products of matrices: rows of length 1,
// decays, the substitution, and sums over rows. See core/kernels/delta_rule.h for the names.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/cpu/simd/loops.h"

namespace snug::kernels::cpu {
namespace {

// 1 / sqrt(sum(x²) + eps) of the row that starts at element `begin`.
template <class T>
SNUG_INLINE float inverse_length(const void* x, int64_t begin, int64_t dim) {
  Sums squares;
  sweep_slots(0, dim, [&](int64_t i, auto lanes, auto slot) {
    const F value = read<T>(x, begin + i, lanes);
    squares.slots[slot.value] += value * value;
  });
  return 1.f / __builtin_sqrtf(squares.total() + kDeltaRuleEps);
}

template <class T>
SNUG_INLINE void unit_row(const void* x, int64_t begin, int64_t dim, float factor, float* out) {
  const float scale = factor * inverse_length<T>(x, begin, dim);
  sweep(0, dim, [&](int64_t i, auto lanes) {
    write<F32>(out, i, read<T>(x, begin + i, lanes) * scale, lanes);
  });
}

// A query or key as the form reads it.
template <class T>
SNUG_INLINE void key_row(StateForm form, const void* x, int64_t begin, int64_t dim, float factor,
                         float* out) {
  if (form == StateForm::Delta) return unit_row<T>(x, begin, dim, factor, out);
  sweep(0, dim,
        [&](int64_t i, auto lanes) { write<F32>(out, i, read<T>(x, begin + i, lanes), lanes); });
}

// With n = x r of length 1: dx = factor r (dy - n (dy · n)).
template <class T>
SNUG_INLINE void unit_row_backward(const void* x, int64_t begin, int64_t dim, float factor,
                                   const float* dy, void* dx, int64_t dx_begin) {
  const float r = inverse_length<T>(x, begin, dim);
  Sums dots;
  sweep_slots(0, dim, [&](int64_t i, auto lanes, auto slot) {
    dots.slots[slot.value] += read<F32>(dy, i, lanes) * read<T>(x, begin + i, lanes);
  });
  const float along = dots.total() * r * r;
  sweep(0, dim, [&](int64_t i, auto lanes) {
    const F across = read<F32>(dy, i, lanes) - read<T>(x, begin + i, lanes) * along;
    write<T>(dx, dx_begin + i, across * (factor * r), lanes);
  });
}

// `value` in the lanes of columns below `end`, 0 elsewhere.
SNUG_INLINE F below(F value, int64_t column, int64_t end) {
  const I columns = lane_numbers() + static_cast<int32_t>(column);
  return columns < static_cast<int32_t>(end) ? value : F{};
}

// Each vector of a row of a square: body(column, place among the square's floats).
template <class Body>
SNUG_INLINE void sweep_score_row(const ScoreSquare& square, int64_t row, const Body& body) {
  for (int64_t j = 0; j < square.stride; j += kLanes) body(j, row * square.stride + j);
}

// Columns [column, column + kLanes) of a row of Y. Two sums hide the latency of the addition.
SNUG_INLINE F substituted(const ScoreSquare& x, const float* beta, const ScoreSquare& y,
                          int64_t row, int64_t column) {
  const float* factors = x.data + row * x.stride;
  const float* from = y.data + column;
  F even = load_f(factors + column), odd = {};
  int64_t j = column + 1;  // the rows before have nothing in these columns
  for (; j + 2 <= row; j += 2) {
    even -= factors[j] * beta[j] * load_f(from + j * y.stride);
    odd -= factors[j + 1] * beta[j + 1] * load_f(from + (j + 1) * y.stride);
  }
  if (j < row) even -= factors[j] * beta[j] * load_f(from + j * y.stride);
  return even + odd;
}

// Each vector of rows in panels: body(row, column, place among the panels' floats, lanes), with no
// columns beyond `cols`.
template <class Body>
SNUG_INLINE void sweep_panels(const ColumnPanels& panels, int64_t rows, const Body& body) {
  for (int64_t first = 0; first < panels.cols; first += panels.width) {
    const int64_t left = panels.cols - first;
    const int64_t count = left < panels.width ? left : panels.width;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t begin = first * panels.height + row * panels.width;
      sweep(0, count, [&](int64_t i, auto lanes) { body(row, first + i, begin + i, lanes); });
    }
  }
}

SNUG_INLINE void clear_beyond(const ColumnPanels& panels, int64_t rows) {
  const int64_t last = panels.cols % panels.width;
  if (last == 0) return;
  float* from = panels.data + (panels.cols - last) * panels.height;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = last; i < panels.width; ++i) from[row * panels.width + i] = 0.f;
  }
}

// What the decayed state gives for the key: decay * S' k.
SNUG_INLINE void known_values(const float* state, const float* k, int64_t dk, int64_t dv,
                              float decay, float* known) {
  sweep(0, dv, [&](int64_t j, auto lanes) {
    F sum = {};
    for (int64_t i = 0; i < dk; ++i) sum += k[i] * read<F32>(state, i * dv + j, lanes);
    write<F32>(known, j, decay * sum, lanes);
  });
}

template <bool kHasX>
SNUG_INLINE void score_gradients(const DeltaScoreGradients& a) {
  sweep_score_row(a.decay, 0, [&](int64_t j, int64_t) { store_f(a.columns + j, F{}); });
  for (int64_t i = 0; i < a.rows; ++i) {
    F sum = {};
    sweep_score_row(a.decay, i, [&](int64_t j, int64_t at) {
      const F d = load_f(a.decay.data + at);
      const F dp = load_f(a.dp.data + at);
      F both = load_f(a.p.data + at) * dp;
      if constexpr (kHasX) {
        const F dx = load_f(a.dx.data + at);
        both += load_f(a.x.data + at) * dx;
        store_f(a.dx.data + at, below(d * dx, j, i));
      }
      const F m = below(both, j, i);
      sum += m;
      store_f(a.columns + j, load_f(a.columns + j) + m);
      store_f(a.dp.data + at, below(d * dp, j, i + 1));
    });
    a.db[i] += sum_of_lanes(sum);
  }
  for (int64_t i = 0; i < a.rows; ++i) a.db[i] -= a.columns[i];
}

template <class T>
SNUG_INLINE void step_head(const DeltaRuleStep& args, int64_t sequence, int64_t head, float* room) {
  const int64_t dk = args.key_dim, dv = args.value_dim;
  const int64_t key_head = head / (args.num_value_heads / args.num_key_heads);
  const int64_t number = sequence * args.num_value_heads + head;
  float *q = room, *k = q + dk, *update = k + dk;
  const float scale = 1.f / __builtin_sqrtf(static_cast<float>(dk));
  key_row<T>(args.form, args.q, sequence * args.q_stride + key_head * dk, dk, scale, q);
  key_row<T>(args.form, args.k, sequence * args.k_stride + key_head * dk, dk, 1.f, k);
  float decays[kLanes];
  store_f(decays, exponential(broadcast(args.g[number])));
  const float decay = decays[0], beta = args.beta[number];
  const float skip = args.skip != nullptr ? args.skip[head] : 0.f;
  float* state = args.states + number * dk * dv;
  const bool is_delta = args.form == StateForm::Delta;
  if (is_delta) known_values(state, k, dk, dv, decay, update);
  sweep(0, dv, [&](int64_t j, auto lanes) {
    const F v = read<T>(args.v, sequence * args.v_stride + head * dv + j, lanes);
    const F u = beta * (is_delta ? v - read<F32>(update, j, lanes) : v);
    F sum = skip * v;
    for (int64_t i = 0; i < dk; ++i) {
      const F s = decay * read<F32>(state, i * dv + j, lanes) + k[i] * u;
      write<F32>(state, i * dv + j, s, lanes);
      sum += q[i] * s;
    }
    write<T>(args.out, number * dv + j, sum, lanes);
  });
}

}  // namespace

namespace SNUG_ISA {

void delta_unit_rows(const TypedRows& shared, float factor, float* out, int64_t out_stride) {
  with_type(shared.type, [&](auto type) {
    const TypedRows x = shared;
    for (int64_t row = 0; row < x.rows; ++row) {
      unit_row<decltype(type)>(x.data, row * x.stride, x.dim, factor, out + row * out_stride);
    }
  });
}

void delta_unit_rows_backward(const TypedRows& shared, float factor, const float* d_out,
                              int64_t d_out_stride, void* dx, int64_t dx_stride) {
  with_type(shared.type, [&](auto type) {
    const TypedRows x = shared;
    for (int64_t row = 0; row < x.rows; ++row) {
      unit_row_backward<decltype(type)>(x.data, row * x.stride, x.dim, factor,
                                        d_out + row * d_out_stride, dx, row * dx_stride);
    }
  });
}

void delta_decays(const DeltaSums& shared, const ScoreSquare& decay, float* from_start,
                  float* to_end) {
  const DeltaSums b = shared;
  const ScoreSquare d = decay;
  for (int64_t i = 0; i < b.count; ++i) {
    sweep(0, i + 1, [&](int64_t j, auto lanes) {
      const F difference =
          (b.high[i] - read<F32>(b.high, j, lanes)) + (b.low[i] - read<F32>(b.low, j, lanes));
      write<F32>(d.data, i * d.stride + j, exponential(difference), lanes);
    });
    for (int64_t j = i + 1; j < d.stride; ++j) d.data[i * d.stride + j] = 0.f;
  }
  const float high = b.high[b.count - 1], low = b.low[b.count - 1];
  sweep(0, b.count, [&](int64_t j, auto lanes) {
    const F h = read<F32>(b.high, j, lanes), l = read<F32>(b.low, j, lanes);
    write<F32>(from_start, j, exponential(h + l), lanes);
    write<F32>(to_end, j, exponential((high - h) + (low - l)), lanes);
  });
}

void delta_decay_scores(const ScoreSquare& decay, const ScoreSquare& scores, Triangle triangle,
                        int64_t rows, const ScoreSquare& result) {
  const ScoreSquare d = decay, s = scores, out = result;
  const int64_t more = triangle == Triangle::WithDiagonal ? 1 : 0;
  for (int64_t i = 0; i < rows; ++i) {
    sweep_score_row(d, i, [&](int64_t j, int64_t at) {
      const F product = load_f(d.data + at) * load_f(s.data + at);
      store_f(out.data + at, below(product, j, i + more));
    });
  }
}

void delta_substitute(const ScoreSquare& x, const float* beta, int64_t rows, const ScoreSquare& y) {
  const ScoreSquare from = x, to = y;
  for (int64_t i = 0; i < rows; ++i) {
    sweep_score_row(to, i, [&](int64_t j, int64_t at) {
      store_f(to.data + at, j < i ? below(substituted(from, beta, to, i, j), j, i) : F{});
    });
  }
}

void delta_score_gradients(const DeltaScoreGradients& shared) {
  const DeltaScoreGradients a = shared;
  if (a.x.data != nullptr)
    score_gradients<true>(a);
  else
    score_gradients<false>(a);
}

void delta_load_rows(const TypedRows& shared, const ColumnPanels& panels) {
  with_type(shared.type, [&](auto type) {
    const TypedRows x = shared;
    const ColumnPanels out = panels;
    clear_beyond(out, x.rows);
    sweep_panels(out, x.rows, [&](int64_t row, int64_t column, int64_t at, auto lanes) {
      write<F32>(out.data, at, read<decltype(type)>(x.data, row * x.stride + column, lanes), lanes);
    });
  });
}

void delta_residual(const TypedRows& shared, const float* factors, const ColumnPanels& panels) {
  with_type(shared.type, [&](auto type) {
    const TypedRows v = shared;
    const ColumnPanels x = panels;
    sweep_panels(x, v.rows, [&](int64_t row, int64_t column, int64_t at, auto lanes) {
      const F value = read<decltype(type)>(v.data, row * v.stride + column, lanes);
      write<F32>(x.data, at, value - factors[row] * read<F32>(x.data, at, lanes), lanes);
    });
  });
}

void delta_scale_rows(const float* factors, const ColumnPanels& x, int64_t rows,
                      const ColumnPanels& result) {
  const ColumnPanels from = x, to = result;
  clear_beyond(to, rows);
  sweep_panels(to, rows, [&](int64_t row, int64_t, int64_t at, auto lanes) {
    write<F32>(to.data, at, factors[row] * read<F32>(from.data, at, lanes), lanes);
  });
}

void delta_add_panels(float factor, const ColumnPanels& x, int64_t rows, const ColumnPanels& sums) {
  const ColumnPanels from = x, to = sums;
  sweep_panels(to, rows, [&](int64_t, int64_t, int64_t at, auto lanes) {
    write<F32>(to.data, at,
               read<F32>(to.data, at, lanes) + factor * read<F32>(from.data, at, lanes), lanes);
  });
}

void delta_dot_rows(const ColumnPanels& x, const ColumnPanels& y, int64_t rows, float* out) {
  const ColumnPanels a = x, b = y;
  for (int64_t row = 0; row < rows; ++row) {
    F sum = {};
    for (int64_t first = 0; first < a.cols; first += a.width) {
      const int64_t begin = first * a.height + row * a.width;
      const int64_t left = a.cols - first;
      sweep(0, left < a.width ? left : a.width, [&](int64_t i, auto lanes) {
        sum += read<F32>(a.data, begin + i, lanes) * read<F32>(b.data, begin + i, lanes);
      });
    }
    out[row] = sum_of_lanes(sum);
  }
}

void delta_add_rows(const DeltaRowSums& shared) {
  const DeltaRowSums a = shared;
  for (int64_t row = 0; row < a.rows; ++row) {
    const int64_t begin = row * a.stride;
    const float factor = a.factors[row];
    F dot = {};
    sweep(0, a.dim, [&](int64_t i, auto lanes) {
      const F scaled = factor * read<F32>(a.x, begin + i, lanes);
      dot += scaled * read<F32>(a.y, begin + i, lanes);
      write<F32>(a.sums, begin + i, read<F32>(a.sums, begin + i, lanes) + scaled, lanes);
    });
    a.dots[row] = sum_of_lanes(dot);
  }
}

void delta_step_head(const DeltaRuleStep& shared, int64_t sequence, int64_t head, float* room) {
  with_type(shared.type, [&](auto type) {
    const DeltaRuleStep args = shared;
    step_head<decltype(type)>(args, sequence, head, room);
  });
}

}  // namespace SNUG_ISA
}  // namespace snug::kernels::cpu
