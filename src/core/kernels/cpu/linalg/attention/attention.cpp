// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/linalg/attention/attention.h"

#include "base/error.h"
#include "core/kernels/cpu/linalg/attention/attention_common.h"

namespace snug::kernels::cpu {
namespace {

void check_documents(const int32_t* starts, int64_t count, int64_t num_tokens) {
  int64_t end = 0;
  for (int64_t doc = 0; doc <= count; ++doc) {
    SNUG_CHECK(starts[doc] >= end && (doc > 0 || starts[0] == 0),
               "attention: document {} starts at token {} after {}", doc, starts[doc], end);
    end = starts[doc];
  }
  SNUG_CHECK(end == num_tokens, "attention: documents end at token {} of {}", end, num_tokens);
}

void check_other_sequence(const AttentionArgs& args) {
  SNUG_CHECK(args.causal || args.sliding_window == 0,
             "attention: keys of another sequence have no order to queries, so no window");
  check_documents(args.kv_cu_seqlens, args.num_documents, args.num_keys);
  for (int64_t doc = 0; doc < args.num_documents; ++doc)
    SNUG_CHECK(args.kv_cu_seqlens[doc + 1] > args.kv_cu_seqlens[doc] ||
                   args.cu_seqlens[doc + 1] == args.cu_seqlens[doc],
               "attention: document {} has queries but no keys", doc);
  for (int64_t doc = 0; args.causal && doc < args.num_documents; ++doc)
    SNUG_CHECK(args.kv_cu_seqlens[doc + 1] - args.kv_cu_seqlens[doc] >=
                   args.cu_seqlens[doc + 1] - args.cu_seqlens[doc],
               "attention: document {} has queries before its first key", doc);
}

void check_bias(const BiasTable& table) {
  const int64_t one_way = table.both_directions ? table.num_buckets / 2 : table.num_buckets;
  SNUG_CHECK(one_way >= 2 && table.max_distance > one_way / 2,
             "attention: {} buckets for biases up to distance {}", table.num_buckets,
             table.max_distance);
}

}  // namespace

void check_attention(const AttentionArgs& args) {
  SNUG_CHECK(args.head_dim >= 1 && args.head_dim <= 512,
             "attention: head dimension {}, at most 512", args.head_dim);
  SNUG_CHECK(args.num_kv_heads >= 1 && args.num_heads % args.num_kv_heads == 0,
             "attention: {} query heads do not share {} key/value heads evenly", args.num_heads,
             args.num_kv_heads);
  SNUG_CHECK(args.scale > 0, "attention: scale {}", args.scale);
  check_documents(args.cu_seqlens, args.num_documents, args.num_tokens);
  if (args.num_keys > 0) check_other_sequence(args);
  SNUG_CHECK(args.dropout.probability >= 0 && args.dropout.probability < 1,
             "attention: a share of {} is dropped", args.dropout.probability);
  if (args.bias.num_buckets > 0) check_bias(args.bias);
}

int64_t attention_workspace_bytes(const AttentionArgs& args, bool backward) {
  return backward ? attention_backward_workspace_bytes(args)
                  : attention_forward_workspace_bytes(args);
}

}  // namespace snug::kernels::cpu
