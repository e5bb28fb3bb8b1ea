// Softmax attention over packed documents (variable length), grouped-query, causal or not, with an
// optional sliding window, relative biases and dropout; self- or cross-attention. With a causal
// mask and more keys than queries a document's last query is that of its last key. Flash-style:
// scores exist one cache-sized block at a time, so memory is linear in tokens; the backward pass
// recomputes them from the row's log-sum-exp. A token sees only its own document. Scores, softmax
// and sums are float32 for every storage type. Results are bit-equal from run to run and for any
// number of threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/kernels/cpu/linalg/gemm.h"
#include "core/kernels/dropout.h"

namespace snug::kernels::cpu {

// T5's biases by the distance of key and query: half the buckets hold one distance each, the others
// grow logarithmically up to max_distance, beyond which all share the last.
struct BiasTable {
  int64_t num_buckets = 0;     // 0: no biases
  const void* data = nullptr;  // (num_buckets, H)
  Scalar type = Scalar::F32;
  int64_t max_distance = 0;
  bool both_directions = false;  // half the buckets are for keys after the query
};
// The row of the table for a key `distance` tokens after the query, before it if that is negative.
int64_t relative_bucket(int64_t distance, const BiasTable& table);

// N tokens of queries, M of keys, H heads, Hkv key/value heads (a divisor of H), head dimension D
// <= 512. M = N except for cross-attention.
struct AttentionArgs {
  int64_t num_tokens = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t num_documents = 0;
  const int32_t* cu_seqlens = nullptr;  // (num_documents + 1), from 0 to N
  Scalar type = Scalar::F32;
  const void *q = nullptr, *k = nullptr, *v = nullptr;  // (N, H, D), (M, Hkv, D), (M, Hkv, D)
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;     // elements from token to token
  float scale = 1.f;                                    // of the scores, usually 1/sqrt(D)
  int64_t sliding_window = 0;  // 0: none; w: a token sees keys of distance < w, as Mistral
  bool causal = true;
  // For cross-attention: the keys' documents, none of them empty. Without a causal mask there is no
  // window; with one a document has at least as many keys as queries, and its queries are its last
  // tokens.
  int64_t num_keys = 0;                    // M; 0: self-attention
  const int32_t* kv_cu_seqlens = nullptr;  // (num_documents + 1), from 0 to M
  BiasTable bias;                          // on the scaled scores
  float score_cap = 0;  // c: a scaled score s becomes c * tanh(s / c); 0: none. Not with biases
  // (H): the score of one more key for each row of a head, whose value is zero: it takes a share of
  // the probability, and lse counts it (Xiao et al. 2023; gpt-oss). Null: none.
  const float* sinks = nullptr;
  ProbabilityDropout dropout;
  void* out = nullptr;   // (N, H, D) contiguous, of `type`
  float* lse = nullptr;  // (H, N) log of the sum of exp(score); the backward pass needs it
  int num_threads = 0;   // 0: as many as OpenMP gives
};

int64_t attention_workspace_bytes(const AttentionArgs& args, bool backward);
void attention_forward(const AttentionArgs& args, void* workspace);  // workspace: 64-byte aligned

struct AttentionBackwardArgs {
  AttentionArgs forward;        // with out and lse as attention_forward left them
  const void* d_out = nullptr;  // (N, H, D) contiguous, of forward.type
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;  // (N, H, D), (M, Hkv, D) twice, contiguous
  float* d_bias = nullptr;   // (num_buckets, H); null: the table wants no gradient
  float* d_sinks = nullptr;  // (H); null: the sinks want no gradient
};
void attention_backward(const AttentionBackwardArgs& args, void* workspace);

// Attention of one new token for each of S sequences to its cache, for generation. Memory-bound:
// every cached key and value is read once for all query heads that share it.
struct DecodeAttentionArgs {
  int64_t num_sequences = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0;
  Scalar type = Scalar::F32;
  const void* q = nullptr;                            // (S, H, D) contiguous
  const void *k_cache = nullptr, *v_cache = nullptr;  // (S, max_len, Hkv, D)
  int64_t sequence_stride = 0, token_stride = 0;      // elements; heads are D apart
  const int32_t* lengths = nullptr;  // (S) cached tokens to attend to, the new one included
  float scale = 1.f;
  int64_t sliding_window = 0;
  BiasTable bias;                // the query is the last of the cached tokens
  float score_cap = 0;           // as in AttentionArgs
  const float* sinks = nullptr;  // as in AttentionArgs
  void* out = nullptr;           // (S, H, D) contiguous
  int num_threads = 0;
};
int64_t decode_attention_workspace_bytes(const DecodeAttentionArgs& args);
void decode_attention(const DecodeAttentionArgs& args, void* workspace);

}  // namespace snug::kernels::cpu
