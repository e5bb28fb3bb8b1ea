// Liger's kernels in place of operators of PyTorch (use_liger_kernel of transformers' Trainer):
// norms, rotary positions, gated MLPs, and the head with its loss in chunks of rows. Allocations
// are those of the Python around the kernels, in version 0.8.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace snug::plan::rivals::liger {

// x (…, D), weight (D). Keeps x. Its gradient takes the place of that of the result, unless
// something else reads that. The weight's gradient is added up in `parts`, one a multiprocessor.
enum class GradientOfNorm { InPlace, Apart };
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, GradientOfNorm kind,
                    int64_t parts);

// x (B, H, T, D) in the memory order of (B, T, H, D), and copied to it if it is not: turned in
// place, as its gradient.
at::Tensor rotated(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

// act(gate) * up. Keeps both, which their gradients replace.
at::Tensor gated(const at::Tensor& gate, const at::Tensor& up);

struct Head {
  at::ScalarType product = at::kFloat;  // the type of products, of which weights have copies
  // The product for the weight's gradient adds to it, as on a GPU; else it is made apart.
  bool adds_in_place = true;
};
// The loss of x (N, D) and weight (V, D). Gradients are computed in the forward and kept: as large
// as x, and as the weight if it trains. At most about as many logits as x has elements at a time.
at::Tensor head_and_loss(const at::Tensor& x, const at::Tensor& weight, Head kind);

}  // namespace snug::plan::rivals::liger
