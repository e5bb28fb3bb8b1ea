// The building blocks of kernels.h, for the instruction set that the including file is compiled
// for. That file defines SNUG_SIMD_WIDTH, SNUG_TILE_ROWS and SNUG_TILE_VECTORS (columns / width):
// as many accumulators as the registers hold beside one row of B and one element of A.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/cpu/linalg/dequantize_impl.h"
#include "core/kernels/cpu/linalg/isa/kernels.h"
#include "core/kernels/cpu/linalg/quantized_dot_impl.h"
#include "core/kernels/cpu/linalg/with_type.h"

namespace snug::kernels::cpu {
namespace {

constexpr int kTileRows = SNUG_TILE_ROWS;
constexpr int kTileVectors = SNUG_TILE_VECTORS;
constexpr int kTileCols = kTileVectors * kLanes;
static_assert(kTileRows * kTileCols <= kMaxTileFloats);

// --- The register tile
// -----------------------------------------------------------------------------

void multiply_tile(int64_t k, const float* a, const float* b, float* c, int64_t c_stride,
                   float alpha, bool accumulate) {
  F sums[kTileRows][kTileVectors] = {};
  for (int i = 0; i < kTileRows; ++i) __builtin_prefetch(c + i * c_stride);
#pragma GCC unroll 4
  for (int64_t p = 0; p < k; ++p) {
    F row[kTileVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kTileVectors; ++v) row[v] = load_f(b + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kTileRows; ++i) {
      const F x = broadcast(a[i]);
#pragma GCC unroll 16
      for (int v = 0; v < kTileVectors; ++v) sums[i][v] += x * row[v];
    }
    a += kTileRows;
    b += kTileCols;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kTileVectors; ++v) {
      float* out = c + i * c_stride + v * kLanes;
      const F scaled = sums[i][v] * alpha;
      store_f(out, accumulate ? load_f(out) + scaled : scaled);
    }
  }
}

double fma_loop(int64_t rounds) {
  constexpr int kChains = 12;
  F sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = broadcast(1e-3f * float(i));
  F factor = broadcast(0.999f), term = broadcast(1e-3f);
  asm volatile("" : "+m"(factor), "+m"(term));  // unknown to the optimizer
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sums[i] = sums[i] * factor + term;
  }
  for (int i = 0; i < kChains; ++i) asm volatile("" : : "m"(sums[i]));
  return 2.0 * kChains * kLanes * double(rounds);
}

// --- Packing
// ---------------------------------------------------------------------------------------

// rows[i] lane j  <->  rows[j] lane i
SNUG_INLINE void transpose(F8 (&r)[8]) {
  F8 s[8], t[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    s[2 * i] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    s[2 * i + 1] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
#pragma GCC unroll 2
  for (int h = 0; h < 8; h += 4) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      t[h + 2 * i] = __builtin_shufflevector(s[h + i], s[h + i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      t[h + 2 * i + 1] =
          __builtin_shufflevector(s[h + i], s[h + i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = __builtin_shufflevector(t[i], t[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    r[i + 4] = __builtin_shufflevector(t[i], t[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

// Up to eight lines whose elements follow each other (depth_stride 1), transposed into `group`
// columns of a panel. Eight are stored even where the group is narrower: what spills over is
// overwritten by the next step along depth, by the caller's next group, or lies in the slack.
template <class T, int Width>
void pack_along_depth(const typename T::storage* data, int64_t line_stride, int lines, int group,
                      int64_t depth, float* out) {
  int64_t p = 0;
  for (; p + 8 <= depth; p += 8) {
    F8 r[8];
    if (lines == 8) {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) r[i] = load<8>(T{}, data + i * line_stride + p);
    } else {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i)
        r[i] = i < lines ? load<8>(T{}, data + i * line_stride + p) : F8{};
    }
    transpose(r);
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) store<8>(F32{}, out + (p + q) * Width, r[q]);
  }
  for (; p < depth; ++p) {
    for (int i = 0; i < group; ++i) {
      out[p * Width + i] = i < lines ? load_one(T{}, data + i * line_stride + p) : 0.f;
    }
  }
}

// Depths [p, end) of one panel whose lines follow each other (line_stride 1). Whole vectors are
// stored in ascending order, so that their spill is overwritten, except at the panel's last depth.
template <class T, int Width>
SNUG_INLINE void pack_panel_strip(const typename T::storage* data, int64_t depth_stride, int64_t p,
                                  int64_t end, float* out) {
  for (; p < end; ++p) {
#pragma GCC unroll 8
    for (int i = 0; i < Width; i += 8) {
      store<8>(F32{}, out + p * Width + i, load<8>(T{}, data + p * depth_stride + i));
    }
  }
}

template <class T, int Width>
SNUG_INLINE void pack_panel_slowly(const typename T::storage* data, int64_t depth_stride,
                                   int64_t lines, int64_t p, int64_t end, float* out) {
  for (; p < end; ++p) {
    for (int64_t i = 0; i < Width; ++i) {
      out[p * Width + i] = i < lines ? load_one(T{}, data + p * depth_stride + i) : 0.f;
    }
  }
}

// All panels advance together, a few depths at a time: one panel's depths are a large stride apart,
// and with a stride of a power of two would push each other out of the cache before the next panel
// reads the rest of their lines.
template <class T, int Width>
void pack_along_lines(const PackArgs& args) {
  constexpr int kStored = (Width + 7) / 8 * 8, kStrip = 8;
  for (int64_t p = 0; p < args.depth; p += kStrip) {
    const int64_t end = args.depth - p < kStrip ? args.depth : p + kStrip;
    for (int64_t line = 0; line < args.lines; line += Width) {
      const auto* data = at<T>(args.data, line);
      float* out = args.out + line * args.depth;
      const bool whole = args.lines - line >= Width && args.lines_readable - line >= kStored;
      const int64_t fast = !whole ? p : end == args.depth && kStored > Width ? end - 1 : end;
      pack_panel_strip<T, Width>(data, args.depth_stride, p, fast, out);
      pack_panel_slowly<T, Width>(data, args.depth_stride, args.lines - line, fast, end, out);
    }
  }
}

template <class T, int Width>
void pack_typed(const PackArgs& args) {
  if (args.line_stride == 1) return pack_along_lines<T, Width>(args);
  float* out = args.out;
  for (int64_t line = 0; line < args.lines; line += Width, out += Width * args.depth) {
    const int64_t lines = args.lines - line < Width ? args.lines - line : Width;
    const auto* data = at<T>(args.data, line * args.line_stride);
    // The last group first: where it is narrower than eight, it spills into what the others write.
    for (int i = (Width - 1) / 8 * 8; i >= 0; i -= 8) {
      const int64_t group = Width - i < 8 ? Width - i : 8;
      const int64_t left = lines - i < 0 ? 0 : lines - i;
      pack_along_depth<T, Width>(data + i * args.line_stride, args.line_stride,
                                 int(left < group ? left : group), int(group), args.depth, out + i);
    }
  }
}

template <int Width>
void pack(const PackArgs& args) {
  with_type(args.type, [&](auto type) { pack_typed<decltype(type), Width>(args); });
}

// --- Results
// ---------------------------------------------------------------------------------------

template <class T>
void store_typed(const StoreArgs& args) {
  for (int64_t i = 0; i < args.rows; ++i) {
    const float* source = args.source + i * args.source_stride;
    auto* c = static_cast<typename T::storage*>(args.c) + i * args.c_stride;
    const auto* bias = at<T>(args.bias, 0);
    int64_t j = 0;
    for (; j + kLanes <= args.cols; j += kLanes) {
      F x = load_f(source + j) * args.alpha;
      if (bias) x += load<kLanes>(T{}, bias + j);
      if (args.accumulate) x += load<kLanes>(T{}, c + j);
      store<kLanes>(T{}, c + j, x);
    }
    for (; j < args.cols; ++j) {
      float x = source[j] * args.alpha;
      if (bias) x += load_one(T{}, bias + j);
      if (args.accumulate) x += load_one(T{}, c + j);
      store_one(T{}, c + j, x);
    }
  }
}

void store_block(const StoreArgs& args) {
  with_type(args.type, [&](auto type) { store_typed<decltype(type)>(args); });
}

// --- Few rows
// --------------------------------------------------------------------------------------

void unpack(const void* data, Scalar type, int64_t stride, int64_t count, float* out) {
  with_type(type, [&](auto t) {
    using T = decltype(t);
    int64_t p = 0;
    if (stride == 1) {
      for (; p + kLanes <= count; p += kLanes) store_f(out + p, load<kLanes>(T{}, at<T>(data, p)));
    }
    for (; p < count; ++p) out[p] = load_one(T{}, at<T>(data, p * stride));
  });
}

// Rows x Cols dot products at once: enough independent sums to hide the latency of the
// multiply-add.
template <class T, int Rows, int Cols>
void dot_block(const SkinnyArgs& args, int64_t row, int64_t col) {
  const auto* b = at<T>(args.b, col * args.b_stride);
  const float* a = args.a + row * args.a_stride;
  F sums[Rows][Cols] = {};
  int64_t p = 0;
  for (; p + kLanes <= args.k; p += kLanes) {
    F y[Cols];
#pragma GCC unroll 8
    for (int j = 0; j < Cols; ++j) {
      y[j] = load<kLanes>(T{}, b + j * args.b_stride + p);
      __builtin_prefetch(b + (Cols + j) * args.b_stride + p);  // the block after this one
    }
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const F x = load_f(a + i * args.a_stride + p);
#pragma GCC unroll 8
      for (int j = 0; j < Cols; ++j) sums[i][j] += x * y[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < Cols; ++j) {
      float sum = sum_of_lanes(sums[i][j]);
      for (int64_t q = p; q < args.k; ++q) {
        sum += a[i * args.a_stride + q] * load_one(T{}, b + j * args.b_stride + q);
      }
      args.sums[(row + i) * args.sums_stride + col + j] = sum;
    }
  }
}

template <class T, int Cols>
void dot_columns(const SkinnyArgs& args, int64_t col) {
  int64_t row = 0;
  for (; row + 4 <= args.m; row += 4) dot_block<T, 4, Cols>(args, row, col);
  for (; row + 2 <= args.m; row += 2) dot_block<T, 2, Cols>(args, row, col);
  if (row < args.m) dot_block<T, 1, Cols>(args, row, col);
}

void skinny_dot(const SkinnyArgs& args) {
  with_type(args.type, [&](auto type) {
    using T = decltype(type);
    int64_t col = 0;
    if (args.m == 1) {
      for (; col + 8 <= args.cols; col += 8) dot_block<T, 1, 8>(args, 0, col);
    }
    for (; col + 3 <= args.cols; col += 3) dot_columns<T, 3>(args, col);
    for (; col < args.cols; ++col) dot_columns<T, 1>(args, col);
  });
}

// sums[i][:] += a[i][p..p+Depth) * b[p..p+Depth)[:]
template <class T, int Depth>
SNUG_INLINE void axpy_rows(const SkinnyArgs& args, int64_t p, int64_t i) {
  const auto* b = at<T>(args.b, p * args.b_stride);
  const float* a = args.a + i * args.a_stride + p;
  float* sums = args.sums + i * args.sums_stride;
  int64_t j = 0;
  for (; j + kLanes <= args.cols; j += kLanes) {
    F sum = load_f(sums + j);
#pragma GCC unroll 8
    for (int d = 0; d < Depth; ++d) {
      sum += load<kLanes>(T{}, b + d * args.b_stride + j) * a[d];
      if (i == 0) __builtin_prefetch(b + (Depth + d) * args.b_stride + j);  // the rows after these
    }
    store_f(sums + j, sum);
  }
  for (; j < args.cols; ++j) {
    float sum = sums[j];
    for (int d = 0; d < Depth; ++d) sum += load_one(T{}, b + d * args.b_stride + j) * a[d];
    sums[j] = sum;
  }
}

void skinny_axpy(const SkinnyArgs& args) {
  for (int64_t i = 0; i < args.m; ++i) {
    __builtin_memset(args.sums + i * args.sums_stride, 0, uint64_t(args.cols) * sizeof(float));
  }
  with_type(args.type, [&](auto type) {
    using T = decltype(type);
    int64_t p = 0;
    for (; p + 8 <= args.k; p += 8) {
      for (int64_t i = 0; i < args.m; ++i) axpy_rows<T, 8>(args, p, i);
    }
    for (; p < args.k; ++p) {
      for (int64_t i = 0; i < args.m; ++i) axpy_rows<T, 1>(args, p, i);
    }
  });
}

// --- Rows of attention scores
// ----------------------------------------------------------------------

float row_max(const float* x, int64_t n) {
  float largest = -__builtin_inff();
  int64_t j = 0;
  if (n >= kLanes) {
    F most = load_f(x);
    for (j = kLanes; j + kLanes <= n; j += kLanes) most = maximum(most, load_f(x + j));
    for (int i = 0; i < kLanes; ++i) largest = most[i] > largest ? most[i] : largest;
  }
  for (; j < n; ++j) largest = x[j] > largest ? x[j] : largest;
  return largest;
}

float row_exp(float* x, int64_t n, float scale, float shift) {
  F sums = {};
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    const F e = exponential(load_f(x + j) * scale - shift);
    store_f(x + j, e);
    sums += e;
  }
  if (j < n) {
    F rest = {}, live = {};
    for (int i = 0; i < n - j; ++i) {
      rest[i] = x[j + i];
      live[i] = 1.f;
    }
    const F e = exponential(rest * scale - shift);
    for (int i = 0; i < n - j; ++i) x[j + i] = e[i];
    sums += live > 0.f ? e : F{};
  }
  return sum_of_lanes(sums);
}

void row_scale(float* x, int64_t n, float factor) {
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) store_f(x + j, load_f(x + j) * factor);
  for (; j < n; ++j) x[j] *= factor;
}

void row_bias(float* x, int64_t n, float scale, const float* bias) {
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) store_f(x + j, load_f(x + j) * scale + load_f(bias + j));
  for (; j < n; ++j) x[j] = x[j] * scale + bias[j];
}

// cap * tanh(x / cap), by exp(-2 |x / cap|).
SNUG_INLINE F capped(F x, float cap) {
  const F ratio = x * (1.f / cap);
  const F e = exponential((ratio < 0.f ? ratio : -ratio) * 2.f);
  const F size = (1.f - e) / (1.f + e) * cap;
  return ratio < 0.f ? -size : size;
}

void row_cap(float* x, int64_t n, float scale, float cap) {
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) store_f(x + j, capped(load_f(x + j) * scale, cap));
  if (j == n) return;
  F rest = {};
  for (int i = 0; i < n - j; ++i) rest[i] = x[j + i];
  rest = capped(rest * scale, cap);
  for (int i = 0; i < n - j; ++i) x[j + i] = rest[i];
}

// 32 random bits for each of the columns from `column` on of a row. Two multiplications mix the
// column; the key enters before each, moved by the row.
SNUG_INLINE VectorOf<kLanes>::U random_bits(uint64_t key, uint32_t row, uint32_t column) {
  VectorOf<kLanes>::U x = {};
  for (int i = 0; i < kLanes; ++i) x[i] = uint32_t(i);
  x += column;
  x ^= uint32_t(key) + row * 0x9e3779b9u;
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= (x >> 15) ^ uint32_t(key >> 32);
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

void row_drop(float* x, int64_t n, const DropArgs& args) {
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    const auto bits = random_bits(args.key, args.row, args.column + uint32_t(j));
    store_f(x + j, bits >= args.drop_below ? load_f(x + j) : F{});
  }
  if (j == n) return;
  const auto bits = random_bits(args.key, args.row, args.column + uint32_t(j));
  for (int i = 0; i < n - j; ++i) x[j + i] = bits[i] >= args.drop_below ? x[j + i] : 0.f;
}

template <bool Biased, bool Dropped, bool Capped = false>
void score_gradients_of(const ScoreGradientArgs& args) {
  using I = VectorOf<kLanes>::I;
  I lane = {};
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  I begin = I{} + int32_t(args.begin), end = I{} + int32_t(args.end);
  const I columns = I{} + int32_t(args.columns);
  for (int64_t i = 0; i < args.rows; ++i, begin += 1, end += 1) {
    const I last = end < columns ? end : columns;
    for (int v = 0; v < kTileVectors; ++v) {
      float* scores = args.scores + i * kTileCols + v * kLanes;
      float* gradients = args.d_probabilities + i * kTileCols + v * kLanes;
      const I column = lane + v * kLanes;
      const I visible = (column >= begin) & (column < last);
      F shift = broadcast(args.lse[i]);
      if constexpr (Biased) shift -= load_f(args.bias - i + v * kLanes);
      F score = load_f(scores) * args.scale;
      if constexpr (Capped) score = capped(score, args.cap);
      const F raw = exponential(score - shift);
      const F p = visible ? raw : F{};
      F arriving = load_f(gradients), kept = p;
      if constexpr (Dropped) {
        const auto bits = random_bits(args.drop.key, args.drop.row + uint32_t(i),
                                      args.drop.column + uint32_t(v * kLanes));
        arriving = bits >= args.drop.drop_below ? arriving * args.kept_scale : F{};
        kept = bits >= args.drop.drop_below ? p * args.kept_scale : F{};
      }
      F change = arriving - args.delta[i];
      if constexpr (Capped) {
        const F ratio = score * (1.f / args.cap);
        change *= 1.f - ratio * ratio;
      }
      // A masked gradient may be anything, so it is selected away rather than multiplied by zero.
      const F d = visible ? p * change * args.scale : F{};
      store_f(scores, kept);
      store_f(gradients, d);
      if constexpr (Biased) {
        if (args.d_bias == nullptr) continue;
        float* sums = args.d_bias - i + v * kLanes;
        store_f(sums, load_f(sums) + d);
      }
    }
  }
}

void score_gradients(const ScoreGradientArgs& args) {
  const bool dropped = args.drop.drop_below > 0;
  if (args.cap > 0)
    return dropped ? score_gradients_of<false, true, true>(args)
                   : score_gradients_of<false, false, true>(args);
  if (args.bias != nullptr) {
    return dropped ? score_gradients_of<true, true>(args) : score_gradients_of<true, false>(args);
  }
  return dropped ? score_gradients_of<false, true>(args) : score_gradients_of<false, false>(args);
}

float row_dot(const void* x, const void* y, Scalar type, int64_t n) {
  float sum = 0.f;
  with_type(type, [&](auto t) {
    using T = decltype(t);
    F sums = {};
    int64_t j = 0;
    for (; j + kLanes <= n; j += kLanes) {
      sums += load<kLanes>(T{}, at<T>(x, j)) * load<kLanes>(T{}, at<T>(y, j));
    }
    sum = sum_of_lanes(sums);
    for (; j < n; ++j) sum += load_one(T{}, at<T>(x, j)) * load_one(T{}, at<T>(y, j));
  });
  return sum;
}

constexpr Kernels kTable = {
    .tile = {.mr = kTileRows,
             .nr = kTileCols,
             .multiply = multiply_tile,
             .pack_a = pack<kTileRows>,
             .pack_b = pack<kTileCols>},
    .store = store_block,
    .unpack = unpack,
    .skinny_dot = skinny_dot,
    .skinny_axpy = skinny_axpy,
    .dequantize = dequantize_stretches,
#ifdef __AVX512F__
    .quantized_dot = quantized_dot,
    .split_pairs = split_pairs,
#endif
    .row_max = row_max,
    .row_exp = row_exp,
    .row_scale = row_scale,
    .row_bias = row_bias,
    .row_cap = row_cap,
    .row_drop = row_drop,
    .score_gradients = score_gradients,
    .row_dot = row_dot,
    .fma_loop = fma_loop,
};

}  // namespace
}  // namespace snug::kernels::cpu
