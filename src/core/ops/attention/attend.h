// Attention over packed documents, forward and backward, without autograd; used by
// core/ops/attention/attention.h and core/ops/attention/context_attention.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "core/ops/attention/attention.h"
#include "core/ops/attention/library_attention.h"

namespace snug::ops {

// q (N, H, D), k and v (M, Hkv, D), all rotated. The result is written to `out` (N, H*D) if it is
// defined.
AttentionOutput attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const AttentionContext& context, const at::Tensor& out = {});

// What besides q, k and v wants a gradient.
struct Trained {
  bool bias = false, sinks = false;
};

// d_out (N, H, D), contiguous. Gradients are written to the tensors of `room` that are defined.
AttentionGradients attend_backward(const at::Tensor& d_out, const at::Tensor& q,
                                   const at::Tensor& k, const at::Tensor& v,
                                   const AttentionOutput& forward, const AttentionContext& context,
                                   Trained trained, const AttentionGradients& room = {});

}  // namespace snug::ops
