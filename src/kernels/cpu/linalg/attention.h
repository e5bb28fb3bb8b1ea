// Softmax attention over packed documents (variable length), grouped-query, causal or not, with an
// optional sliding window. Flash-style: scores exist one cache-sized block at a time, so memory is
// linear in tokens; the backward pass recomputes them from the row's log-sum-exp. A token sees only
// its own document. Scores, softmax and sums are float32 for every storage type. Results are
// bit-equal from run to run and for any number of threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cpu/linalg/gemm.h"

namespace snug::kernels::cpu {

// N tokens, H heads, Hkv key/value heads (a divisor of H), head dimension D <= 256.
struct AttentionArgs {
  int64_t num_tokens = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t num_documents = 0;
  const int32_t* cu_seqlens = nullptr;  // (num_documents + 1), from 0 to N
  Scalar type = Scalar::F32;
  const void *q = nullptr, *k = nullptr, *v = nullptr;  // (N, H, D), (N, Hkv, D), (N, Hkv, D)
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;     // elements from token to token
  float scale = 1.f;                                    // of the scores, usually 1/sqrt(D)
  int64_t sliding_window = 0;  // 0: none; w: a token sees keys of distance < w, as Mistral
  bool causal = true;
  void* out = nullptr;   // (N, H, D) contiguous, of `type`
  float* lse = nullptr;  // (H, N) log of the sum of exp(score); the backward pass needs it
  int num_threads = 0;   // 0: as many as OpenMP gives
};

int64_t attention_workspace_bytes(const AttentionArgs& args, bool backward);
void attention_forward(const AttentionArgs& args, void* workspace);  // workspace: 64-byte aligned

struct AttentionBackwardArgs {
  AttentionArgs forward;        // with out and lse as attention_forward left them
  const void* d_out = nullptr;  // (N, H, D) contiguous, of forward.type
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;  // (N, H, D), (N, Hkv, D) twice, contiguous
};
void attention_backward(const AttentionBackwardArgs& args, void* workspace);

// One new token for each of S sequences against its cache, for generation. Memory-bound: every
// cached key and value is read once for all query heads that share it.
struct DecodeAttentionArgs {
  int64_t num_sequences = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0;
  Scalar type = Scalar::F32;
  const void* q = nullptr;                            // (S, H, D) contiguous
  const void *k_cache = nullptr, *v_cache = nullptr;  // (S, max_len, Hkv, D)
  int64_t sequence_stride = 0, token_stride = 0;      // elements; heads are D apart
  const int32_t* lengths = nullptr;  // (S) cached tokens to attend to, the new one included
  float scale = 1.f;
  int64_t sliding_window = 0;
  void* out = nullptr;  // (S, H, D) contiguous
  int num_threads = 0;
};
int64_t decode_attention_workspace_bytes(const DecodeAttentionArgs& args);
void decode_attention(const DecodeAttentionArgs& args, void* workspace);

}  // namespace snug::kernels::cpu
