// What forward and backward of the gated delta rule and of Mamba 2's scan share: the scratch of a
// thread, the products of its matrices, a chunk's scores and decays, and how threads take tasks.
// See core/kernels/delta_rule.h for the names.
//
// Matrices of values (tokens or dk rows, dv columns) are kept in the panels that a product reads as
// its right operand and writes as its result, so that they need no packing in between. Rows are
// padded to whole register tiles: a product writes zeros there, or adds them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "core/kernels/cpu/isa.h"
#include "core/kernels/cpu/linalg/isa/kernels.h"
#include "core/kernels/cpu/linalg/parallel.h"
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/delta_rule.h"

namespace snug::kernels::cpu::delta_rule {

void check_delta_rule(const DeltaRuleForward& args);

// A vectorised function of simd/kernels.h, for the instruction set in use.
struct Loops {
#define SNUG_DELTA_LOOP(name) decltype(&portable::delta_##name) name = SNUG_FOR_ISA(delta_##name)
  SNUG_DELTA_LOOP(unit_rows);
  SNUG_DELTA_LOOP(unit_rows_backward);
  SNUG_DELTA_LOOP(decays);
  SNUG_DELTA_LOOP(decay_scores);
  SNUG_DELTA_LOOP(substitute);
  SNUG_DELTA_LOOP(score_gradients);
  SNUG_DELTA_LOOP(load_rows);
  SNUG_DELTA_LOOP(residual);
  SNUG_DELTA_LOOP(scale_rows);
  SNUG_DELTA_LOOP(add_panels);
  SNUG_DELTA_LOOP(dot_rows);
  SNUG_DELTA_LOOP(add_rows);
#undef SNUG_DELTA_LOOP
};

struct Lengths {
  Lengths(const DeltaRuleSizes& sizes, const Tile& tile)
      : tokens(round_up(sizes.chunk, tile.mr)),
        scores(round_up(round_up(sizes.chunk, 16), tile.nr)),
        key_rows(round_up(sizes.key_dim, tile.mr)),
        key_cols(round_up(sizes.key_dim, tile.nr)),
        value_cols(round_up(sizes.value_dim, tile.nr)),
        most_chunks(ceil_div(sizes.max_seqlen, sizes.chunk)) {}
  int64_t tokens;      // of a chunk, padded
  int64_t scores;      // row stride of a chunk's scores
  int64_t key_rows;    // of a state
  int64_t key_cols;    // row stride of q, k and their gradients
  int64_t value_cols;  // of a state
  int64_t most_chunks;
};

// Operands of a product as the tile's packing leaves them. Panel i of the left one lies at data + i
// * depth * mr, panel j of the right one at data + j * depth * nr.
struct Operand {
  const float* data = nullptr;
  int64_t depth = 0;
};
// Rows of tile column j start at data + j * step.
struct Result {
  float* data = nullptr;
  int64_t row_stride = 0, step = 0;
};
// Where an operand or the result is a triangle, the rest need not be multiplied.
enum class Triangles { None, LeftIsLower, LeftIsUpper, ResultIsLower };

// C = alpha A B, or C += alpha A B.
struct Product {
  int64_t rows = 0, cols = 0, depth = 0;
  Operand left, right;
  Result result;
  float alpha = 1.f;
  bool add = false;
  Triangles triangles = Triangles::None;
};

// Packs and multiplies with one register tile.
class Products {
 public:
  explicit Products(const Tile& tile) : tile_(tile) {}

  void multiply(const Product& product) const;

  // A row-major matrix (rows, depth) as left operand.
  Operand left(const float* data, int64_t stride, int64_t rows, int64_t depth, float* out) const;
  // The transposed of a row-major matrix (depth, rows), whose rows may be read up to `stride`.
  Operand left_transposed(const float* data, int64_t stride, int64_t rows, int64_t depth,
                          float* out) const;
  Operand left_of_panels(const ColumnPanels& panels, int64_t rows, float* out) const;
  // A row-major matrix (depth, cols) as right operand, and the transposed of one (cols, depth).
  Operand right(const float* data, int64_t stride, int64_t cols, int64_t depth, float* out) const;
  Operand right_transposed(const float* data, int64_t stride, int64_t cols, int64_t depth,
                           float* out) const;
  Operand right_transposed(const ColumnPanels& panels, int64_t rows, float* out) const;

 private:
  const Tile& tile_;
};

inline Operand right_of(const ColumnPanels& panels) { return {panels.data, panels.height}; }
inline Result into(const ColumnPanels& panels) {
  return {panels.data, panels.width, panels.height * panels.width};
}

// Room for the panels of operands: (lines, depth) of them, padded by the caller.
inline float* take_panels(Carver& carver, int64_t lines, int64_t depth) {
  return carver.take<float>(lines * depth + kPackSlack);
}

// One thread's scratch for what a chunk's forward needs.
struct ChunkScratch {
  ChunkScratch(Carver& carver, const DeltaRuleSizes& sizes, const Tile& tile);

  ColumnPanels token_panels(float* data) const { return {data, tokens, width, value_dim}; }
  ColumnPanels state_panels(float* data) const { return {data, key_rows, width, value_dim}; }
  // Rows of q, k and their gradients: a single panel.
  ColumnPanels key_panel(float* data) const { return {data, tokens, key_stride, key_dim}; }
  ScoreSquare square(float* data) const { return {data, score_stride}; }
  Result scores_into(float* data) const { return {data, score_stride, width}; }

  int64_t tokens, key_rows, key_stride, width, key_dim, value_dim, score_stride;
  float *q_rows, *k_rows;             // (tokens, dk) as the form reads them
  float *q_left, *k_left, *k_t_left;  // Q, K: (tokens, dk); K': (dk, tokens)
  float* k_t_right;                   // K': (dk, tokens)
  float *kk, *qk;                     // K K', Q K': scores
  float *decay, *p, *x, *y;           // scores; a sum has no K K', X and Y
  float* score_left;                  // any of them as left operand
  float *high, *low;                  // (C) b in two parts
  float *from_start, *to_end;         // (C) exp(b), exp(B - b)
  float *beta, *late_beta;            // (C) the latter exp(B - b) beta
  float* u;                           // (tokens, dv) panels: multiples of E
};

// Some tokens of one document.
struct Chunk {
  int64_t first = 0, count = 0;  // the first is counted over all documents
};

// A chunk's rows of one head, among tokens `stride` elements apart.
TypedRows rows_of(const void* data, Scalar type, int64_t stride, const Chunk& chunk, int64_t head,
                  int64_t dim);

enum class Reads { State, StateAndQueries };

// A chunk's forward. The state lies in `state_panels`, E and the output in `token_panels`. The
// state before a document's first chunk is null: zeros, which need not be multiplied.
class ChunkForward {
 public:
  ChunkForward(const DeltaRuleForward& args, const Kernels& kernels, const ChunkScratch& scratch,
               Reads reads)
      : args_(args), kernels_(kernels), products_(kernels.tile), work_(scratch), reads_(reads) {}

  // K, Q and their products, for all value heads of the key head.
  void load_keys(const Chunk& chunk, int64_t key_head) const;
  // Decays and scores.
  void load_scores(const Chunk& chunk, int64_t value_head) const;
  // E, from the state before the chunk.
  void solve(const Chunk& chunk, int64_t value_head, float* before, float* e) const;
  // exp(b) Q S + P U (+ d V), from the state before the chunk.
  void read_out(const Chunk& chunk, int64_t value_head, float* before, float* e, float* out) const;
  // S = exp(B) S + (exp(B - b) K)' U
  void advance(const Chunk& chunk, float* e, float* state) const;

 private:
  bool queries() const { return reads_ == Reads::StateAndQueries; }
  bool solves() const { return args_.sizes.form == StateForm::Delta; }
  void load_key_rows(const TypedRows& x, float factor, float* out) const;
  void load_decays(const Chunk& chunk, int64_t value_head) const;

  const DeltaRuleForward& args_;
  const Kernels& kernels_;
  const Products products_;
  const ChunkScratch& work_;
  const Loops loops_;
  const Reads reads_;
};

// A document with some value heads of a key head.
struct HeadTask {
  int64_t document = 0, first_token = 0, num_tokens = 0;
  int64_t key_head = 0, first_head = 0, num_heads = 0;
};
// The longest documents come first, so that threads finish together; a key head's tasks follow each
// other.
std::vector<HeadTask> head_tasks(const DeltaRuleForward& args, int64_t most_heads);

template <class Scratch>
int64_t workspace_bytes(const DeltaRuleForward& args) {
  Carver own(nullptr);
  Scratch(own, args.sizes, active_kernels().tile);
  return own.used() * resolve_threads(args.num_threads);
}

template <class Scratch>
std::vector<Scratch> scratch_of_threads(const DeltaRuleForward& args, void* workspace) {
  Carver carver(workspace);
  const int threads = resolve_threads(args.num_threads);
  std::vector<Scratch> work;
  work.reserve(static_cast<size_t>(threads));
  for (int t = 0; t < threads; ++t) work.emplace_back(carver, args.sizes, active_kernels().tile);
  return work;
}

// body(number of a task, its thread's scratch). A task starts after all that come before it, so
// that it may wait for them.
template <class Scratch, class Body>
void each_task(size_t num_tasks, const std::vector<Scratch>& work, const Body& body) {
  const int threads = static_cast<int>(work.size());
  std::atomic<size_t> next = 0;
#pragma omp parallel num_threads(threads)
  {
    const Scratch& own = work[static_cast<size_t>(omp_get_thread_num())];
    for (size_t task = next++; task < num_tasks; task = next++) body(task, own);
  }
}

// Panels as rows of any type.
void store_panels(const Kernels& kernels, const ColumnPanels& panels, int64_t rows, void* out,
                  Scalar type, int64_t stride);

}  // namespace snug::kernels::cpu::delta_rule
