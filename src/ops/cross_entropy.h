// The output head and its loss as one operator, some rows at a time, so that logits never exist
// whole: neither forward nor backward. The gradients are computed in the forward pass, while the
// logits are at hand; the backward pass only hands them on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "ops/counted_rows.h"
#include "ops/projection.h"
#include "ops/shared_rows.h"

namespace snug::ops {

// How rows go through: in pieces, each of which has its gradients computed as a whole, and these in
// stretches, whose float32 logits exist at one time.
struct RowCut {
  int64_t piece = 0;
  int64_t stretch = 0;
  bool sums_apart = false;  // the head's gradients are added up in float32 (ops/gradient_sums.h)
};

// What linear_cross_entropy() takes for a head of which this rank has `columns` of the vocabulary.
RowCut cut_rows(const at::Tensor& x, const Projection& head, int64_t rows, int64_t columns,
                bool training);

struct CrossEntropyOptions {
  int64_t ignore_index = -100;
  double scale = 1.0;  // of the gradient; the loss itself is returned as a plain sum
  double label_smoothing = 0;
  double z_loss = 0;                         // Chowdhery et al. 2022 (PaLM), section 5
  std::optional<RowCut> cut = std::nullopt;  // for tests
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
