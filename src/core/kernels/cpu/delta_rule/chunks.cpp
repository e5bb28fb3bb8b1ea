// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/delta_rule/chunks.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace snug::kernels::cpu::delta_rule {
namespace {

// Packs panels of columns as the depth of panels of `width` lines. Parts along the depth follow
// each other in a panel. A part may spill into what comes after it, which is packed later.
Operand pack_panels(const ColumnPanels& panels, int64_t rows, int64_t width,
                    void (*pack)(const PackArgs&), float* out) {
  const int64_t depth = panels.cols;
  for (int64_t row = 0; row < rows; row += width) {
    const int64_t lines = std::min(width, rows - row);
    for (int64_t col = 0; col < depth; col += panels.width) {
      pack({panels.data + col * panels.height + row * panels.width, Scalar::F32, panels.width, 1,
            lines, lines, std::min(panels.width, depth - col), out + row * depth + col * width});
    }
  }
  return {out, depth};
}

}  // namespace

void check_delta_rule(const DeltaRuleForward& args) {
  const DeltaRuleSizes& sizes = args.sizes;
  SNUG_CHECK(sizes.key_dim >= 1 && sizes.value_dim >= 1 && sizes.chunk >= 1,
             "delta rule: keys of {}, values of {}, chunks of {} tokens", sizes.key_dim,
             sizes.value_dim, sizes.chunk);
  SNUG_CHECK(sizes.num_key_heads >= 1 && sizes.num_value_heads % sizes.num_key_heads == 0,
             "delta rule: {} value heads do not share {} key heads evenly", sizes.num_value_heads,
             sizes.num_key_heads);
  SNUG_CHECK(args.skip == nullptr || sizes.form == StateForm::Sum,
             "delta rule: only a sum has values that skip the state");
  int64_t end = 0;
  for (int64_t doc = 0; doc <= sizes.num_documents; ++doc) {
    const int64_t start = args.cu_seqlens[doc];
    SNUG_CHECK(start >= end && (doc > 0 || start == 0) && start - end <= sizes.max_seqlen,
               "delta rule: document {} starts at token {} after {}; none is longer than {} tokens",
               doc, start, end, sizes.max_seqlen);
    end = start;
  }
  SNUG_CHECK(end == sizes.num_tokens, "delta rule: documents end at token {} of {}", end,
             sizes.num_tokens);
}

void Products::multiply(const Product& p) const {
  const int64_t mr = tile_.mr, nr = tile_.nr;
  for (int64_t col = 0; col < p.cols; col += nr) {
    const float* right = p.right.data + col * p.right.depth;
    float* result = p.result.data + col / nr * p.result.step;
    for (int64_t row = 0; row < p.rows; row += mr) {
      if (p.triangles == Triangles::ResultIsLower && col >= row + mr) continue;
      const int64_t begin = p.triangles == Triangles::LeftIsUpper ? row : 0;
      const int64_t end =
          p.triangles == Triangles::LeftIsLower ? std::min(p.depth, row + mr) : p.depth;
      tile_.multiply(end - begin, p.left.data + row * p.left.depth + begin * mr, right + begin * nr,
                     result + row * p.result.row_stride, p.result.row_stride, p.alpha, p.add);
    }
  }
}

Operand Products::left(const float* data, int64_t stride, int64_t rows, int64_t depth,
                       float* out) const {
  tile_.pack_a({data, Scalar::F32, stride, 1, rows, rows, depth, out});
  return {out, depth};
}

Operand Products::left_transposed(const float* data, int64_t stride, int64_t rows, int64_t depth,
                                  float* out) const {
  tile_.pack_a({data, Scalar::F32, 1, stride, rows, stride, depth, out});
  return {out, depth};
}

Operand Products::left_of_panels(const ColumnPanels& panels, int64_t rows, float* out) const {
  return pack_panels(panels, rows, tile_.mr, tile_.pack_a, out);
}

Operand Products::right(const float* data, int64_t stride, int64_t cols, int64_t depth,
                        float* out) const {
  tile_.pack_b({data, Scalar::F32, 1, stride, cols, stride, depth, out});
  return {out, depth};
}

Operand Products::right_transposed(const float* data, int64_t stride, int64_t cols, int64_t depth,
                                   float* out) const {
  tile_.pack_b({data, Scalar::F32, stride, 1, cols, cols, depth, out});
  return {out, depth};
}

Operand Products::right_transposed(const ColumnPanels& panels, int64_t rows, float* out) const {
  return pack_panels(panels, rows, tile_.nr, tile_.pack_b, out);
}

ChunkScratch::ChunkScratch(Carver& carver, const DeltaRuleSizes& sizes, const Tile& tile) {
  const Lengths lengths(sizes, tile);
  const int64_t chunk = sizes.chunk, dim = sizes.key_dim;
  tokens = lengths.tokens, key_rows = lengths.key_rows, key_stride = lengths.key_cols;
  width = tile.nr, key_dim = dim, value_dim = sizes.value_dim, score_stride = lengths.scores;
  for (float** rows : {&q_rows, &k_rows}) *rows = carver.take<float>(tokens * key_stride);
  for (float** left : {&q_left, &k_left}) *left = take_panels(carver, tokens, dim);
  k_t_left = take_panels(carver, key_rows, chunk);
  k_t_right = take_panels(carver, score_stride, dim);
  for (float** scores : {&qk, &decay, &p}) *scores = carver.take<float>(tokens * score_stride);
  const bool solves = sizes.form == StateForm::Delta;
  for (float** scores : {&kk, &x, &y})
    *scores = solves ? carver.take<float>(tokens * score_stride) : nullptr;
  score_left = take_panels(carver, tokens, chunk);
  for (float** row : {&high, &low, &from_start, &to_end, &beta, &late_beta}) {
    *row = carver.take<float>(chunk);
  }
  u = carver.take<float>(tokens * lengths.value_cols);
}

TypedRows rows_of(const void* data, Scalar type, int64_t stride, const Chunk& chunk, int64_t head,
                  int64_t dim) {
  const int64_t begin = chunk.first * stride + head * dim;
  return {static_cast<const char*>(data) + begin * scalar_bytes(type), type, stride, chunk.count,
          dim};
}

void ChunkForward::load_key_rows(const TypedRows& x, float factor, float* out) const {
  if (solves())
    loops_.unit_rows(x, factor, out, work_.key_stride);
  else
    loops_.load_rows(x, work_.key_panel(out));
}

void ChunkForward::load_keys(const Chunk& chunk, int64_t key_head) const {
  const DeltaRuleSizes& sizes = args_.sizes;
  const int64_t dim = sizes.key_dim, stride = work_.key_stride, n = chunk.count;
  load_key_rows(rows_of(args_.k, sizes.type, args_.k_stride, chunk, key_head, dim), 1.f,
                work_.k_rows);
  products_.left_transposed(work_.k_rows, stride, dim, n, work_.k_t_left);
  if (!solves() && !queries()) return;
  const Operand left = products_.left(work_.k_rows, stride, n, dim, work_.k_left);
  const Operand right = products_.right_transposed(work_.k_rows, stride, n, dim, work_.k_t_right);
  Product product{
      n, n, dim, left, right, work_.scores_into(work_.kk), 1.f, false, Triangles::ResultIsLower};
  if (solves()) products_.multiply(product);
  if (!queries()) return;
  load_key_rows(rows_of(args_.q, sizes.type, args_.q_stride, chunk, key_head, dim),
                1.f / std::sqrt(static_cast<float>(dim)), work_.q_rows);
  product.left = products_.left(work_.q_rows, stride, n, dim, work_.q_left);
  product.result = work_.scores_into(work_.qk);
  products_.multiply(product);
}

void ChunkForward::load_decays(const Chunk& chunk, int64_t value_head) const {
  const int64_t heads = args_.sizes.num_value_heads;
  double sum = 0;
  for (int64_t i = 0; i < chunk.count; ++i) {
    const int64_t at = (chunk.first + i) * heads + value_head;
    sum += args_.g[at];
    work_.high[i] = static_cast<float>(sum);
    work_.low[i] = static_cast<float>(sum - work_.high[i]);
    work_.beta[i] = args_.beta[at];
  }
  loops_.decays({work_.high, work_.low, chunk.count}, work_.square(work_.decay), work_.from_start,
                work_.to_end);
  for (int64_t i = 0; i < chunk.count; ++i) work_.late_beta[i] = work_.to_end[i] * work_.beta[i];
}

void ChunkForward::load_scores(const Chunk& chunk, int64_t value_head) const {
  load_decays(chunk, value_head);
  const ScoreSquare decay = work_.square(work_.decay), x = work_.square(work_.x);
  if (solves()) {
    loops_.decay_scores(decay, work_.square(work_.kk), Triangle::Strict, chunk.count, x);
    loops_.substitute(x, work_.beta, chunk.count, work_.square(work_.y));
  }
  if (!queries()) return;
  loops_.decay_scores(decay, work_.square(work_.qk), Triangle::WithDiagonal, chunk.count,
                      work_.square(work_.p));
}

void ChunkForward::solve(const Chunk& chunk, int64_t value_head, float* before, float* e) const {
  const DeltaRuleSizes& sizes = args_.sizes;
  const int64_t n = chunk.count, dim = sizes.key_dim;
  const ColumnPanels panels = work_.token_panels(e), r = work_.token_panels(work_.u);
  const TypedRows v =
      rows_of(args_.v, sizes.type, args_.v_stride, chunk, value_head, sizes.value_dim);
  if (before == nullptr || !solves()) {
    loops_.load_rows(v, panels);
  } else {
    products_.multiply({.rows = n,
                        .cols = sizes.value_dim,
                        .depth = dim,
                        .left = {work_.k_left, dim},
                        .right = right_of(work_.state_panels(before)),
                        .result = into(panels)});
    loops_.residual(v, work_.from_start, panels);
  }
  if (!solves()) return;
  loops_.scale_rows(work_.beta, panels, n, r);
  products_.multiply({.rows = n,
                      .cols = sizes.value_dim,
                      .depth = n,
                      .left = products_.left(work_.y, work_.score_stride, n, n, work_.score_left),
                      .right = right_of(r),
                      .result = into(panels),
                      .alpha = -1.f,
                      .add = true,
                      .triangles = Triangles::LeftIsLower});
}

void ChunkForward::read_out(const Chunk& chunk, int64_t value_head, float* before, float* e,
                            float* out) const {
  const int64_t n = chunk.count, dim = args_.sizes.key_dim, dv = args_.sizes.value_dim;
  const ColumnPanels panels = work_.token_panels(out), u = work_.token_panels(work_.u);
  if (before != nullptr) {
    products_.multiply({.rows = n,
                        .cols = dv,
                        .depth = dim,
                        .left = {work_.q_left, dim},
                        .right = right_of(work_.state_panels(before)),
                        .result = into(panels)});
    loops_.scale_rows(work_.from_start, panels, n, panels);
  }
  loops_.scale_rows(work_.beta, work_.token_panels(e), n, u);
  products_.multiply({.rows = n,
                      .cols = dv,
                      .depth = n,
                      .left = products_.left(work_.p, work_.score_stride, n, n, work_.score_left),
                      .right = right_of(u),
                      .result = into(panels),
                      .add = before != nullptr,
                      .triangles = Triangles::LeftIsLower});
  if (args_.skip != nullptr)
    loops_.add_panels(args_.skip[value_head], work_.token_panels(e), n, panels);
}

void ChunkForward::advance(const Chunk& chunk, float* e, float* state) const {
  const int64_t n = chunk.count, dv = args_.sizes.value_dim;
  const ColumnPanels u = work_.token_panels(work_.u), panels = work_.state_panels(state);
  loops_.scale_rows(work_.late_beta, work_.token_panels(e), n, u);
  kernels_.row_scale(state, panels.height * round_up(dv, panels.width), work_.from_start[n - 1]);
  products_.multiply({.rows = args_.sizes.key_dim,
                      .cols = dv,
                      .depth = n,
                      .left = {work_.k_t_left, n},
                      .right = right_of(u),
                      .result = into(panels),
                      .add = true});
}

std::vector<HeadTask> head_tasks(const DeltaRuleForward& args, int64_t most_heads) {
  const int64_t group = args.sizes.num_value_heads / args.sizes.num_key_heads;
  std::vector<HeadTask> tasks;
  for (int64_t doc = 0; doc < args.sizes.num_documents; ++doc) {
    const int64_t first = args.cu_seqlens[doc], count = args.cu_seqlens[doc + 1] - first;
    for (int64_t head = 0; head < args.sizes.num_value_heads;) {
      const int64_t key_head = head / group;
      const int64_t heads = std::min(most_heads, (key_head + 1) * group - head);
      tasks.push_back({doc, first, count, key_head, head, heads});
      head += heads;
    }
  }
  std::stable_sort(tasks.begin(), tasks.end(), [](const HeadTask& a, const HeadTask& b) {
    return a.num_tokens > b.num_tokens;
  });
  return tasks;
}

void store_panels(const Kernels& kernels, const ColumnPanels& panels, int64_t rows, void* out,
                  Scalar type, int64_t stride) {
  for (int64_t col = 0; col < panels.cols; col += panels.width) {
    kernels.store({.source = panels.data + col * panels.height,
                   .source_stride = panels.width,
                   .rows = rows,
                   .cols = std::min(panels.width, panels.cols - col),
                   .c = static_cast<char*>(out) + col * scalar_bytes(type),
                   .type = type,
                   .c_stride = stride});
  }
}

}  // namespace snug::kernels::cpu::delta_rule
