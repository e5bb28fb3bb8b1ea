// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/linalg/attention.h"

#include "base/error.h"
#include "kernels/cpu/linalg/attention_common.h"

namespace snug::kernels::cpu {

void check_attention(const AttentionArgs& args) {
  SNUG_CHECK(args.head_dim >= 1 && args.head_dim <= 256,
             "attention: head dimension {}, at most 256", args.head_dim);
  SNUG_CHECK(args.num_kv_heads >= 1 && args.num_heads % args.num_kv_heads == 0,
             "attention: {} query heads do not share {} key/value heads evenly", args.num_heads,
             args.num_kv_heads);
  SNUG_CHECK(args.scale > 0, "attention: scale {}", args.scale);
  int64_t end = 0;
  for (int64_t doc = 0; doc <= args.num_documents; ++doc) {
    SNUG_CHECK(args.cu_seqlens[doc] >= end && (doc > 0 || args.cu_seqlens[0] == 0),
               "attention: document {} starts at token {} after {}", doc, args.cu_seqlens[doc],
               end);
    end = args.cu_seqlens[doc];
  }
  SNUG_CHECK(end == args.num_tokens, "attention: documents end at token {} of {}", end,
             args.num_tokens);
}

int64_t attention_workspace_bytes(const AttentionArgs& args, bool backward) {
  return backward ? attention_backward_workspace_bytes(args)
                  : attention_forward_workspace_bytes(args);
}

}  // namespace snug::kernels::cpu
