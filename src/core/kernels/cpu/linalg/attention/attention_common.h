// Shared by attention's forward and backward: which keys a query attends to, the split of work, and
// operations on one head's rows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "core/kernels/cpu/linalg/attention/attention.h"
#include "core/kernels/cpu/linalg/isa/kernels.h"
#include "core/kernels/cpu/linalg/parallel.h"

namespace snug::kernels::cpu {

// SNUG_CHECKs the callers' arguments: head counts, dimension, documents that cover N.
void check_attention(const AttentionArgs& args);
int64_t attention_forward_workspace_bytes(const AttentionArgs& args);
int64_t attention_backward_workspace_bytes(const AttentionArgs& args);

// The tile that multiplies queries, keys, values and scores. For bfloat16 inputs it is one that
// multiplies bfloat16 itself, where the processor has one whose panels are as wide as those of
// scores and whole steps of depth high; then probabilities and score gradients are rounded to
// bfloat16 before they are multiplied again, as flash attention does on GPUs.
inline const Tile& product_tile(const AttentionArgs& args, const Kernels& kernels) {
  const Tile* bf16 = args.type == Scalar::BF16 ? kernels.bf16 : nullptr;
  const bool fits = bf16 != nullptr && bf16->nr == kernels.tile.nr &&
                    bf16->mr % bf16->depth_step == 0 && bf16->nr % bf16->depth_step == 0;
  return fits ? *bf16 : kernels.tile;
}

// Scores are made as float32; a tile of bfloat16 wants its operands rounded first. `rounded` has
// room for (rows, cols) and is unused otherwise. Lines are rows of the matrix for pack_a, columns
// for pack_b.
enum class Operand { A, B };
inline void pack_scores(const Kernels& kernels, const Tile& tile, Operand operand,
                        const float* scores, int64_t stride, int64_t rows, int64_t cols,
                        uint16_t* rounded, float* out) {
  PackArgs args{scores, Scalar::F32, stride, 1, rows, rows, cols, out};
  if (tile.per_float > 1) {
    kernels.store({.source = scores,
                   .source_stride = stride,
                   .rows = rows,
                   .cols = cols,
                   .c = rounded,
                   .type = Scalar::BF16,
                   .c_stride = cols});
    args.data = rounded, args.type = Scalar::BF16, args.line_stride = cols;
  }
  if (operand == Operand::A) return tile.pack_a(args);
  std::swap(args.line_stride, args.depth_stride);
  args.lines = args.lines_readable = cols, args.depth = rows;
  tile.pack_b(args);
}

inline int64_t num_keys_of(const AttentionArgs& args) {
  return args.num_keys > 0 ? args.num_keys : args.num_tokens;
}

// One document and one key/value head. Queries and keys are counted from the document's start;
// query 0 is the token of key `shift`.
struct Segment {
  int64_t first_query = 0, num_queries = 0;
  int64_t first_key = 0, num_keys = 0;
  int64_t kv_head = 0;
  int64_t shift = 0;
};

inline std::vector<Segment> segments_of(const AttentionArgs& args) {
  std::vector<Segment> segments;
  const int32_t* queries = args.cu_seqlens;
  const int32_t* keys = args.kv_cu_seqlens != nullptr ? args.kv_cu_seqlens : args.cu_seqlens;
  for (int64_t doc = 0; doc < args.num_documents; ++doc) {
    const int64_t num_queries = queries[doc + 1] - queries[doc];
    const int64_t num_keys = keys[doc + 1] - keys[doc];
    const int64_t shift = args.causal ? num_keys - num_queries : 0;
    for (int64_t head = 0; head < args.num_kv_heads; ++head) {
      segments.push_back({queries[doc], num_queries, keys[doc], num_keys, head, shift});
    }
  }
  return segments;
}

// The range of keys that queries [begin, end) of a segment attend to; for one query exactly its
// keys.
inline Range visible_keys(const AttentionArgs& args, const Segment& segment, int64_t begin,
                          int64_t end) {
  const int64_t window = args.sliding_window, num_keys = segment.num_keys;
  const int64_t first = window > 0 ? std::max<int64_t>(0, begin + segment.shift - window + 1) : 0;
  if (args.causal) return {first, end + segment.shift};
  return {first, window > 0 ? std::min(num_keys, end - 1 + window) : num_keys};
}

// The queries of a segment that attend to any of keys [begin, end).
inline Range seeing_queries(const AttentionArgs& args, const Segment& segment, int64_t begin,
                            int64_t end) {
  const int64_t window = args.sliding_window, num_queries = segment.num_queries;
  const int64_t last = window > 0
                           ? std::clamp<int64_t>(end - 1 + window - segment.shift, 0, num_queries)
                           : num_queries;
  if (args.causal) return {std::max<int64_t>(0, begin - segment.shift), last};
  return {window > 0 ? std::max<int64_t>(0, begin - window + 1) : 0, last};
}

// Rows of scores are numbered by head and query, so that each has its own dropout mask.
inline DropArgs drop_of(const AttentionArgs& args, int64_t head, int64_t query, int64_t key) {
  const ProbabilityDropout& dropout = args.dropout;
  const int64_t rows = dropout.num_rows > 0 ? dropout.num_rows : args.num_tokens;
  return {
      .key = dropout.key,
      .row = static_cast<uint32_t>((dropout.first_head + head) * rows + dropout.first_row + query),
      .column = static_cast<uint32_t>(key),
      .drop_below = dropout.threshold()};
}

// The rows of one head for tokens from `token` on, in any of q, k, v, out and their gradients.
struct HeadRows {
  const char* data = nullptr;
  Scalar type = Scalar::F32;
  int64_t stride = 0;  // elements from token to token

  HeadRows(const void* base, Scalar t, int64_t token_stride, int64_t token, int64_t head,
           int64_t dim)
      : data(static_cast<const char*>(base) +
             (token * token_stride + head * dim) * scalar_bytes(t)),
        type(t),
        stride(token_stride) {}

  // Lines are tokens, depth is the head dimension: an operand of a product over the dimension.
  PackArgs tokens_as_lines(int64_t tokens, int64_t readable, int64_t dim, float* out) const {
    return {data, type, stride, 1, tokens, readable, dim, out};
  }
  // Lines are dimensions, depth is tokens: an operand of a product over tokens.
  PackArgs dims_as_lines(int64_t tokens, int64_t dim, float* out) const {
    return {data, type, 1, stride, dim, dim, tokens, out};
  }
};

}  // namespace snug::kernels::cpu
