// The output head and its loss as one operator, a chunk of rows at a time, so that logits never
// exist whole: neither forward nor backward. The gradients are computed in the forward pass, while
// each chunk's logits are at hand; the backward pass only hands them on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "ops/counted_rows.h"
#include "ops/projection.h"
#include "ops/shared_rows.h"

namespace snug::ops {

struct CrossEntropyOptions {
  int64_t ignore_index = -100;
  double scale = 1.0;  // of the gradient; the loss itself is returned as a plain sum
  double label_smoothing = 0;
  double z_loss = 0;  // Chowdhery et al. 2022 (PaLM), section 5
};

// A head whose vocabulary the ranks of a group share: this one has the tokens [first, first + V) of
// `whole`.
struct VocabularyPart {
  TensorShare share;
  int64_t first = 0;
  int64_t whole = 0;
};

// x (N, D), head (V, D), targets (N) int32 -> sum over counted rows of -log
// softmax(head(x))[target], smoothed and with the z-loss as the options say, float32 (1). With
// gradients enabled, d(scale * loss) goes into the head's buffers and into x's gradient whatever
// gradient arrives from above: call backward with ones.
//
// With a part, x is (c, D), this rank's rows, and the loss is that of all rows over the whole
// vocabulary, at every rank alike. Of each row four numbers travel between the ranks.
//
// With `counted` logits are made for those rows alone; the others' targets have to be ignore_index.
// Not for a head with dropout, whose mask depends on where a row stands.
at::Tensor linear_cross_entropy(const at::Tensor& x, const Projection& head,
                                const at::Tensor& targets, const CrossEntropyOptions& options,
                                const std::optional<VocabularyPart>& part = std::nullopt,
                                const CountedRows& counted = {});

}  // namespace snug::ops
