// What the forward and backward pass of attention share: who sees whom, how work is cut, and the
// building blocks applied to one head's rows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cpu/linalg/attention.h"
#include "kernels/cpu/linalg/kernels.h"
#include "kernels/cpu/linalg/parallel.h"

namespace snug::kernels::cpu {

// SNUG_CHECKs what no caller of ours may get wrong: head counts, dimension, documents that cover N.
void check_attention(const AttentionArgs& args);
int64_t attention_forward_workspace_bytes(const AttentionArgs& args);
int64_t attention_backward_workspace_bytes(const AttentionArgs& args);

// One document and one key/value head. Tokens are counted from the document's start.
struct Segment {
  int64_t first_token = 0, length = 0;
  int64_t kv_head = 0;
};

inline std::vector<Segment> segments_of(const AttentionArgs& args) {
  std::vector<Segment> segments;
  for (int64_t doc = 0; doc < args.num_documents; ++doc) {
    const int64_t first = args.cu_seqlens[doc], length = args.cu_seqlens[doc + 1] - first;
    for (int64_t head = 0; head < args.num_kv_heads && length > 0; ++head) {
      segments.push_back({first, length, head});
    }
  }
  return segments;
}

// The keys that tokens [begin, end) of a document see between them; for one token, exactly those.
inline Range visible_keys(const AttentionArgs& args, int64_t length, int64_t begin, int64_t end) {
  const int64_t window = args.sliding_window > 0 ? args.sliding_window : length;
  const int64_t last = args.causal ? end : std::min(length, end - 1 + window);
  return {std::max<int64_t>(0, begin - window + 1), last};
}

// The tokens that see any of keys [begin, end).
inline Range seeing_queries(const AttentionArgs& args, int64_t length, int64_t begin, int64_t end) {
  const int64_t window = args.sliding_window > 0 ? args.sliding_window : length;
  return {args.causal ? begin : std::max<int64_t>(0, begin - window + 1),
          std::min(length, end - 1 + window)};
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
