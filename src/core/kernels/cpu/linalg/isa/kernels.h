// The table of vectorised building blocks that gemm, gemv and attention are made of. One source
// (kernels_impl.h) is compiled once per instruction set into such a table; the rest of this folder
// is ordinary C++ that picks a table at run time and never contains vector code itself.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/kernels/cpu/linalg/gemm.h"
#include "core/kernels/quantized_matrix.h"

namespace snug::kernels::cpu {

enum class Isa;  // cpu_features.h

inline constexpr int kMaxTileFloats = 32 * 32;
// Packing may write this many floats beyond the last panel (whole vectors are stored).
inline constexpr int64_t kPackSlack = 16;

// Lines (rows of A, columns of B) to be packed: element p of line i at data[i*line_stride +
// p*depth_stride].
struct PackArgs {
  const void* data = nullptr;
  Scalar type = Scalar::F32;
  int64_t line_stride = 0, depth_stride = 0;
  int64_t lines = 0;  // to pack; the last panel is filled up with zeros
  int64_t lines_readable =
      0;  // >= lines: how many exist in memory, so that whole vectors may be read
  int64_t depth = 0;
  float* out = nullptr;  // panels of `width` lines: out[panel*depth*width + p*width + i]
};

// C = alpha*source (+ C) (+ bias) for a block, rounding to C's type.
struct StoreArgs {
  const float* source = nullptr;
  int64_t source_stride = 0;
  int64_t rows = 0, cols = 0;
  void* c = nullptr;
  Scalar type = Scalar::F32;
  int64_t c_stride = 0;
  float alpha = 1.f;
  bool accumulate = false;
  const void* bias = nullptr;  // already moved to the block's first column
};

// Rows of A times B without packing B, for m <= kMaxSkinnyRows: B is read once, in its own order.
struct SkinnyArgs {
  int64_t m = 0, cols = 0, k = 0;
  const float* a = nullptr;  // (m, k) float32, row stride a_stride
  int64_t a_stride = 0;
  const void* b = nullptr;
  Scalar type = Scalar::F32;
  int64_t b_stride = 0;   // along columns (dot) or along k (axpy); the other one is 1
  float* sums = nullptr;  // (m, cols), row stride sums_stride
  int64_t sums_stride = 0;
};
inline constexpr int64_t kMaxSkinnyRows = 8;

// Stretches of `count` elements of a quantized weight that follow each other row by row, the first
// at element `first`, the others `step` elements apart, as numbers of `type`.
struct DequantizeArgs {
  const QuantizedMatrix* weight = nullptr;
  int64_t first = 0, count = 0;
  int64_t stretches = 1, step = 0;
  void* out = nullptr;
  Scalar type = Scalar::F32;
  int64_t out_stride = 0;
};

// Dot products with rows of a 4-bit weight whose rows are whole blocks, for m <= kMaxSkinnyRows:
// sums[i][j] of row i of A and row first + j of the weight, as numbers of `type`.
struct QuantizedDotArgs {
  const QuantizedMatrix* weight = nullptr;
  Scalar type = Scalar::F32;
  int64_t m = 0, first = 0, cols = 0;
  const float* a = nullptr;  // as split_pairs leaves it
  int64_t a_stride = 0;
  float* sums = nullptr;
  int64_t sums_stride = 0;
};

// Which probabilities of attention are dropped: those of row `row` and column `column` whose hash
// is below `drop_below`.
struct DropArgs {
  uint64_t key = 0;
  uint32_t row = 0, column = 0;
  uint32_t drop_below = 0;
};

// One panel of attention scores, (rows, nr) without gaps, in the backward pass. Where column j is
// visible to row i, that is begin + i <= j < min(columns, end + i):
//   probability = exp(score * scale - lse[i]),  d_score = probability * (d_probability - delta[i])
//   * scale
// and zero elsewhere. Both in place.
//
// With biases (bias not null), bias[j - i] is added to the scaled score, and the gradient of that
// to d_bias[j - i]. With dropout (drop_below not 0) probabilities and what arrives for them are 0
// where they were dropped, and grown by kept_scale elsewhere.
struct ScoreGradientArgs {
  float* scores = nullptr;           // becomes probabilities
  float* d_probabilities = nullptr;  // becomes d_scores
  int64_t rows = 0, columns = 0, begin = 0, end = 0;
  const float* lse = nullptr;
  const float* delta = nullptr;
  float scale = 1.f;
  float cap = 0.f;  // see AttentionArgs::score_cap
  const float* bias = nullptr;
  float* d_bias = nullptr;  // times scale; null: not wanted
  DropArgs drop;            // of row 0, column 0
  float kept_scale = 1.f;
};

// A register tile and the panels that it reads. Panels are measured in floats, whatever they hold:
// along the depth, one float is per_float elements of k.
struct Tile {
  int mr = 0, nr = 0;
  int depth_step = 1;  // packing fills k up with zeros to a multiple
  int per_float = 1;

  // C tile (mr, nr) = alpha * A panel * B panel (+ C), panels as pack_a and pack_b leave them,
  // `depth` floats deep.
  void (*multiply)(int64_t depth, const float* a, const float* b, float* c, int64_t c_stride,
                   float alpha, bool accumulate) = nullptr;
  void (*pack_a)(const PackArgs&) = nullptr;
  void (*pack_b)(const PackArgs&) = nullptr;

  // Around all multiplications of a thread, where there is something to set up.
  void (*begin_thread)() = nullptr;
  void (*end_thread)() = nullptr;

  int64_t packed_depth(int64_t k) const {
    return (k + depth_step - 1) / depth_step * depth_step / per_float;
  }
};

// Around a thread's products.
class TileScope {
 public:
  explicit TileScope(const Tile& tile) : tile_(tile) {
    if (tile_.begin_thread) tile_.begin_thread();
  }
  ~TileScope() {
    if (tile_.end_thread) tile_.end_thread();
  }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  const Tile& tile_;
};

struct Kernels {
  Tile tile;  // float32 panels, from operands of any type
  const Tile* bf16 =
      nullptr;  // where the processor multiplies bfloat16 itself: for two such operands
  void (*store)(const StoreArgs&) = nullptr;

  // count elements, `stride` apart, as float32.
  void (*unpack)(const void* data, Scalar type, int64_t stride, int64_t count,
                 float* out) = nullptr;
  void (*skinny_dot)(const SkinnyArgs&) = nullptr;   // b element (p, j) at b[j*b_stride + p]
  void (*skinny_axpy)(const SkinnyArgs&) = nullptr;  // b element (p, j) at b[p*b_stride + j]

  void (*dequantize)(const DequantizeArgs&) = nullptr;
  // Null where the numbers are made first and skinny_dot is then as fast.
  void (*quantized_dot)(const QuantizedDotArgs&) = nullptr;
  void (*split_pairs)(float* x, int64_t count) = nullptr;  // for quantized_dot

  // Largest of x[0..n); x = exp(x*scale - shift) in place, returning the sum; x *= factor;
  // x = x*scale + bias; x = cap*tanh(x*scale/cap); x = 0 where it is dropped; sum of x*y for two
  // rows of any type.
  float (*row_max)(const float* x, int64_t n) = nullptr;
  float (*row_exp)(float* x, int64_t n, float scale, float shift) = nullptr;
  void (*row_scale)(float* x, int64_t n, float factor) = nullptr;
  void (*row_bias)(float* x, int64_t n, float scale, const float* bias) = nullptr;
  void (*row_cap)(float* x, int64_t n, float scale, float cap) = nullptr;
  void (*row_drop)(float* x, int64_t n, const DropArgs& args) = nullptr;
  void (*score_gradients)(const ScoreGradientArgs&) = nullptr;
  float (*row_dot)(const void* x, const void* y, Scalar type, int64_t n) = nullptr;

  // Flops per call of a loop of independent multiply-adds in registers, for the peak estimate.
  double (*fma_loop)(int64_t rounds) = nullptr;
};

const Kernels& portable_kernels();
#ifdef __x86_64__
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Tile& avx512_bf16_tile();
const Tile& amx_tile();
#endif
const Kernels& kernels_for(Isa isa);

// Those of best_isa(), or the table that a ScopedKernels has put in place.
const Kernels& active_kernels();

// For tests and benchmarks: runs everything on another table while it lives. Not thread-safe.
class ScopedKernels {
 public:
  explicit ScopedKernels(const Kernels& kernels);
  ~ScopedKernels();
  ScopedKernels(const ScopedKernels&) = delete;
  ScopedKernels& operator=(const ScopedKernels&) = delete;

 private:
  const Kernels* previous_;
};

}  // namespace snug::kernels::cpu
