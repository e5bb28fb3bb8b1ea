// SPDX-License-Identifier: Apache-2.0
#include "core/nn/attention.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <utility>
#include <vector>

#include "base/error.h"
#include "core/kernels/random_key.h"

namespace snug::nn {
namespace {

ops::AttentionContext context_of(const at::Tensor& q, const Packed& queries,
                                 const AttentionOptions& options, const Pass& pass) {
  ops::AttentionContext context{.cu_seqlens = queries.cu_seqlens,
                                .max_seqlen = queries.max_seqlen,
                                .positions = queries.positions,
                                .scale = options.scale,
                                .sliding_window = options.sliding_window,
                                .bias_table = options.bias_table,
                                .sinks = options.sinks,
                                .score_cap = options.score_cap,
                                .max_distance = options.max_distance,
                                .bias_buckets = options.bias_buckets};
  if (options.rope != nullptr) context.rope = *options.rope;
  if (options.dropout > 0 && pass.dropout_key) {
    context.dropout = options.dropout;
    context.dropout_key = mask_key(pass, options.site);
    if (options.queries != nullptr && options.queries->cut() == ops::Cut::Outputs) {
      // A fused layer may hold more than q for each head.
      const Parameter& weight = options.queries->weight();
      const int64_t outputs = weight.shape[0] / weight.slice->sections;
      context.dropout_first_head = weight.slice->begin * q.size(1) / outputs;
    }
  }
  return context;
}

}  // namespace

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            int64_t layer, const AttentionOptions& options, const Batch& batch,
                            const Pass& pass) {
  const ops::AttentionContext context = context_of(q,
                                                   {.cu_seqlens = batch.cu_seqlens,
                                                    .max_seqlen = batch.max_seqlen,
                                                    .positions = batch.positions},
                                                   options, pass);
  KvCache* cache = batch.cache;
  if (batch.context) {
    SNUG_CHECK(cache == nullptr, "{} tokens: a generation cannot use context parallelism",
               q.size(0));
    return ops::context_attention(q, k, v, context, *batch.context);
  }
  if (batch.forks) {
    SNUG_CHECK(cache == nullptr, "{} tokens: a generation's documents share no beginning",
               q.size(0));
    return ops::forked_attention(q, k, v, context, *batch.forks);
  }
  if (cache != nullptr && cache->length() > 0) {
    SNUG_CHECK(q.size(0) == cache->num_sequences(),
               "{} tokens for {} sequences in the key-value cache; after the first pass each "
               "sequence adds one token",
               q.size(0), cache->num_sequences());
    ops::rotate_in_place(q, k, context.positions, context.rope, kernels::RopeDirection::Forward);
    cache->append(layer, k, v);
    return ops::decode_attention(q.contiguous(), cache->keys(layer), cache->values(layer),
                                 cache->length() + 1, context);
  }
  at::Tensor mixed = ops::attention(q, k, v, context);  // rotates k in place
  if (cache != nullptr) cache->append(layer, k, v);
  return mixed;
}

Packed even_sequences(int64_t count, int64_t length, at::Device device) {
  // Filled in place: on meta arange would resize its result without the ledger's notice.
  at::Tensor borders = at::empty({count + 1}, at::TensorOptions().device(device).dtype(at::kInt));
  at::arange_out(borders, 0, (count + 1) * length, length);
  return {.cu_seqlens = ops::Borders::even(std::move(borders), length),
          .max_seqlen = length,
          .positions = {}};
}

at::Tensor full_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const Packed& sequences, const AttentionOptions& options,
                          const Pass& pass) {
  ops::AttentionContext context = context_of(q, sequences, options, pass);
  context.causal = false;
  return ops::attention(q, k, v, context);
}

at::Tensor cross_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const Packed& queries, const Packed& keys,
                           const AttentionOptions& options, const Pass& pass) {
  ops::AttentionContext context = context_of(q, queries, options, pass);
  context.causal = false;
  context.kv_cu_seqlens = keys.cu_seqlens;
  context.max_kv_seqlen = keys.max_seqlen;
  return ops::attention(q, k, v, context);
}

}  // namespace snug::nn
