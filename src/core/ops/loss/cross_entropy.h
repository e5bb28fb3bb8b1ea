// The output head and its loss as one operator, a chunk of rows at a time, so that the logits of
// all rows never exist at once. Cross-entropy's gradients are computed in the forward, while the
// chunk's logits exist; its backward only passes them on. Log-probabilities, whose gradients
// depend on all of them, make the logits twice.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "core/ops/linear/projection.h"
#include "core/ops/loss/counted_rows.h"
#include "core/ops/tensor_share.h"

namespace snug::ops {

// The chunking of rows, at two levels: gradients are computed per outer chunk, float32 logits exist
// for one inner chunk at a time.
struct RowCut {
  int64_t piece = 0;
  int64_t stretch = 0;
  bool sums_apart = false;  // sum the head's gradients in float32 (core/ops/linear/linear.h)
};

// The chunking of the operators below for a head with `columns` of the vocabulary on this rank.
RowCut cut_rows(const at::Tensor& x, const Projection& head, int64_t rows, int64_t columns,
                bool training);

// What becomes of the head's products: logits = scale * products, and then c * tanh(logits / c) if
// there is a cap c.
struct LogitForm {
  double scale = 1;
  double cap = 0;
};

// What a teacher says of each row: its K most likely tokens' ids and log-probabilities, (N, 2 K)
// float32, as core/kernels/cross_entropy.h has them. Undefined: there is none.
struct Teacher {
  at::Tensor tokens;
  double beta = 0;           // of the divergence (core/kernels/divergence.h)
  double target_weight = 0;  // of cross-entropy beside it
};

struct CrossEntropyOptions {
  int64_t ignore_index = -100;
  double scale = 1.0;  // of the gradient; the returned loss is the unscaled sum
  double label_smoothing = 0;
  double z_loss = 0;  // Chowdhery et al. 2022 (PaLM), section 5
  LogitForm form = {};
  Teacher teacher = {};
  std::optional<RowCut> cut = std::nullopt;  // for tests
};

// A head whose vocabulary is split among ranks: this rank has the tokens [first, first + V) of
// `whole`.
struct VocabularyPart {
  TensorShare share;
  int64_t first = 0;
  int64_t whole = 0;
};

// x (N, D), head (V, D), targets (N) int32 -> sum over counted rows of -log
// softmax(head(x))[target], smoothed and with the z-loss as the options say, float32 (1). With
// gradients enabled, d(scale * loss) is added to the head's gradient buffers and x's gradient; the
// incoming gradient is ignored, so call backward with ones.
//
// With a VocabularyPart, x is (c, D), this rank's rows, and every rank returns the loss of all rows
// over the whole vocabulary. Ranks exchange four numbers per row.
//
// With `counted`, logits are computed only for those rows; the other targets must be ignore_index.
// Not for a head with dropout, whose mask depends on the row's position.
//
// With a teacher the terms are divergences from it, beside cross-entropy as weighed, and the result
// is (2): their sum, and that of cross-entropy without the weight, which has no gradient.
at::Tensor linear_cross_entropy(const at::Tensor& x, const Projection& head,
                                const at::Tensor& targets, const CrossEntropyOptions& options,
                                const std::optional<VocabularyPart>& part = std::nullopt,
                                const CountedRows& counted = {});

struct LogProbsOptions {
  int64_t ignore_index = -100;
  LogitForm form = {};
  std::optional<RowCut> cut = std::nullopt;  // for tests
};

// log softmax(head(x))[target] of each row, (N) float32, 0 where the target is ignore_index. Its
// gradient may be any, and is known only after all rows are: the backward makes the logits again,
// chunk by chunk, and adds to the head's gradient buffers. Saves x. The rest is as above.
at::Tensor linear_log_probs(const at::Tensor& x, const Projection& head, const at::Tensor& targets,
                            const LogProbsOptions& options,
                            const std::optional<VocabularyPart>& part = std::nullopt,
                            const CountedRows& counted = {});

// Products (S, V) of a head, float32, become logits in place. No gradient.
void shape_logits(const at::Tensor& products, const LogitForm& form);

}  // namespace snug::ops
