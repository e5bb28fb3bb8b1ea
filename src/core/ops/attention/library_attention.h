// Attention with libtorch's operators, used for cuda tensors. Flash, if supported for the type,
// head size and device; else Products, batched matrix products over blocks of rows, for every type,
// with memory for one block's scores. Neither rotates; both save what the CPU kernel saves: the
// output and one float per head and row. Products works on tensors of any device, so that a test
// holds it to the CPU kernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "core/ops/attention/attention.h"

namespace snug::ops {

enum class LibraryAttention { Flash, Products };

// In its scope meta tensors stand for those of a GPU that has flash attention, or has not; without
// one, or without a value, for this machine's GPU, or where there is none for a newer one's.
class PlannedFlashAttention {
 public:
  explicit PlannedFlashAttention(std::optional<bool> has);
  ~PlannedFlashAttention();
  PlannedFlashAttention(const PlannedFlashAttention&) = delete;
  PlannedFlashAttention& operator=(const PlannedFlashAttention&) = delete;

 private:
  std::optional<bool> saved_;
};

// The faster implementation supported for tensors like q (N, H, D); warns once with the reason if
// it is Products.
LibraryAttention choose_library_attention(const at::Tensor& q, const AttentionContext& context);

struct AttentionOutput {
  at::Tensor out;  // (N, H*D)
  at::Tensor lse;  // (H, N) float32: log of the sum of exp(score), sinks included
};
AttentionOutput library_attention_forward(LibraryAttention way, const at::Tensor& q,
                                          const at::Tensor& k, const at::Tensor& v,
                                          const AttentionContext& context);

struct AttentionGradients {
  at::Tensor dq = {}, dk = {}, dv = {};  // of q's, k's and v's shapes
  // float32; undefined without a table, or sinks, that need a gradient
  at::Tensor d_bias = {};   // (buckets, H)
  at::Tensor d_sinks = {};  // (H)
};
// d_out (N, H, D), contiguous.
AttentionGradients library_attention_backward(LibraryAttention way, const at::Tensor& d_out,
                                              const at::Tensor& q, const at::Tensor& k,
                                              const at::Tensor& v, const AttentionOutput& forward,
                                              const AttentionContext& context);

// The gradient of the sinks, (H) float32, given that of the output; `forward` is with them.
at::Tensor sink_gradients(const at::Tensor& d_out, const AttentionOutput& forward,
                          const AttentionContext& context);

// For each of S sequences one row of q (S, H, D) over the first `length` rows of its cache, (S,
// max, Hkv, D) -> (S, H, D).
at::Tensor library_decode_attention(const at::Tensor& q, const at::Tensor& k_cache,
                                    const at::Tensor& v_cache, int64_t length,
                                    const AttentionContext& context);

}  // namespace snug::ops
