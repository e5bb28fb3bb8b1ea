// What training minimises: a number made of the head's hidden states. The head hands over its input
// and its layer, the executor starts the backward from the gradient that the objective names, and
// steps and validation divide by the number of terms it counts; none of them knows which one it is.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/nn/unit.h"

namespace snug::nn {

class Head;

// What is known of a micro-batch before it runs.
struct BatchCounts {
  int64_t documents = 0;
  int64_t loss_tokens = 0;  // targets other than ignore_index
};

// Numbers beside the tokens that an objective reads, float32: of each document (S), such as a
// label, or of each target (N), such as a weight; `width` of them: (S, width), (N, width).
struct Column {
  enum class Per { Document, Target };
  std::string name;
  Per per = Per::Document;
  int64_t width = 1;
  double fill = 0;  // of rows without a target
};

// What an objective wants its batches to have. A sample is then several documents, one after the
// other: two of a pair, which no micro-batch and no rank parts.
struct BatchSpec {
  int64_t documents_per_sample = 1;
  std::vector<Column> columns = {};
  // sum() is made of document_sums(), which all ranks that share documents' tokens (context
  // parallelism) have; false: of its rows' numbers, so that each rank has a share of it.
  bool by_document = false;
};
// Throws UserError for sizes below 1 and for two columns of one name.
void check(const BatchSpec& spec);

class Objective {
 public:
  virtual ~Objective() = default;

  virtual BatchSpec batch() const { return {}; }

  // What this objective has to know of a step before its passes: the mean over the terms of another
  // one, over the whole global batch, of the samples' other documents (data::BatchSource::others).
  // Passes without gradients find it, and every micro-batch has it as Batch::estimate. Null:
  // nothing.
  virtual const Objective* estimate() const { return nullptr; }

  // Names of F further numbers that sum() has, to look at: means over the terms, too.
  virtual std::vector<std::string> figures() const { return {}; }
  // The figures, of those numbers' means over the terms; one that is no number is not shown.
  virtual std::vector<double> figures_of(std::vector<double> means) const { return means; }

  // The rows of the head's input, before its norm, that it looks at: all of hidden (c, D), or
  // fewer.
  virtual at::Tensor read(const at::Tensor& hidden, const Batch& /*batch*/) const { return hidden; }

  // hidden: those rows, of this rank, after the norm. Returns the sum of the micro-batch's terms,
  // without pass.gradient_scale, and behind it the figures' sums, without a gradient: float32
  // (1 + F).
  virtual at::Tensor sum(const at::Tensor& hidden, const Head& head, const Batch& batch,
                         const Pass& pass) const = 0;

  // The gradient of (pass.gradient_scale * sum) by the sum, from which backward starts.
  virtual at::Tensor start_gradient(const at::Tensor& sum, const Pass& pass) const;

  // How many terms the sum of such a batch has: a step's loss is the mean over those of the whole
  // global batch.
  virtual int64_t terms(const BatchCounts& counts) const { return counts.loss_tokens; }

  // Weight of the loss that balances a mixture's experts (core/ops/routing.h), which the model adds
  // to the sum once for each term.
  virtual double balance() const { return 0; }
};

// -log softmax(logits)[target], summed over the tokens whose target is not ignore_index. With label
// smoothing its share of the target's probability is given to all tokens alike; z_loss weighs
// log(sum(exp(logits)))^2 (Chowdhery et al. 2022, PaLM, section 5). The logits of all rows never
// exist at once (core/ops/loss/cross_entropy.h).
class CrossEntropy final : public Objective {
 public:
  struct Options {
    double label_smoothing = 0;
    double z_loss = 0;
    double balance = 0;
  };
  CrossEntropy() = default;
  explicit CrossEntropy(const Options& options) : options_(options) {}

  at::Tensor sum(const at::Tensor& hidden, const Head& head, const Batch& batch,
                 const Pass& pass) const override;
  // Ones: the gradients are computed with the sum, gradient_scale included.
  at::Tensor start_gradient(const at::Tensor& sum, const Pass& pass) const override;
  double balance() const override { return options_.balance; }

 private:
  Options options_;
};

// values (N) float32, by this rank's rows -> (S): their sums by document, over all ranks that share
// the documents. With a gradient.
at::Tensor document_sums(const at::Tensor& values, const Batch& batch);
// (S) float32: how many targets each document has; 1 for one without, so that its mean is 0.
at::Tensor document_targets(const Batch& batch);
// The inverse of document_sums(): numbers of documents (S) float32 on this rank's rows, (N),
// without a gradient; 0 on rows of padding beyond all documents.
at::Tensor document_rows(const at::Tensor& numbers, const Batch& batch);

// The pass's objective, plain cross-entropy unless it names one.
const Objective& objective_of(const Pass& pass);

}  // namespace snug::nn
