// An objective over pairs of documents that reads columns of both kinds, for tests: chunk by chunk
// as ours are, and of whole logits with libtorch's operators.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <random>
#include <vector>

#include "core/nn/head.h"
#include "core/nn/objective.h"
#include "data/sample_store.h"

namespace snug::tests {

// -log(sigmoid((s - r) of the first document - (s - r) of the second)), where s is a document's sum
// of weighted log-probabilities and r its number "reference".
class Pairs : public nn::Objective {
 public:
  nn::BatchSpec batch() const override {
    return {.documents_per_sample = 2,
            .columns = {{.name = "weight", .per = nn::Column::Per::Target}, {.name = "reference"}},
            .by_document = true};
  }
  int64_t terms(const nn::BatchCounts& counts) const override { return counts.documents / 2; }
  at::Tensor sum(const at::Tensor& hidden, const nn::Head& head, const nn::Batch& batch,
                 const nn::Pass& pass) const override {
    return of_sums(nn::document_sums(head.log_probs(hidden, batch, pass) * batch.columns[0], batch),
                   batch);
  }

 protected:
  static at::Tensor of_sums(const at::Tensor& sums, const nn::Batch& batch) {
    const at::Tensor rewards = (sums - batch.columns[1]).view({-1, 2});
    return at::softplus(rewards.select(1, 1) - rewards.select(1, 0)).sum().reshape({1});
  }
};

// A mean of each document's log-probabilities: by document without a pair or a column.
class MeanOfDocuments final : public nn::Objective {
 public:
  nn::BatchSpec batch() const override { return {.by_document = true}; }
  int64_t terms(const nn::BatchCounts& counts) const override { return counts.documents; }
  at::Tensor sum(const at::Tensor& hidden, const nn::Head& head, const nn::Batch& batch,
                 const nn::Pass& pass) const override {
    const at::Tensor sums = nn::document_sums(head.log_probs(hidden, batch, pass), batch);
    return at::neg(sums / nn::document_targets(batch)).sum().reshape({1});
  }
};

// A sum over tokens, weighed by a number of their document.
class WeighedDocuments final : public nn::Objective {
 public:
  nn::BatchSpec batch() const override {
    return {.columns = {{.name = "target", .per = nn::Column::Per::Target}, {.name = "weight"}}};
  }
  at::Tensor sum(const at::Tensor& hidden, const nn::Head& head, const nn::Batch& batch,
                 const nn::Pass& pass) const override {
    const at::Tensor weights = nn::document_rows(batch.columns[1], batch);
    return at::neg(head.log_probs(hidden, batch, pass) * weights).sum().reshape({1});
  }
};

class PairsOfWholeLogits final : public Pairs {
 public:
  at::Tensor sum(const at::Tensor& hidden, const nn::Head& head, const nn::Batch& batch,
                 const nn::Pass& pass) const override {
    const at::Tensor logits = head.logits(hidden, pass).to(at::kFloat);
    const at::Tensor targets = batch.targets.to(at::kLong);
    const at::Tensor log_probs =
        at::log_softmax(logits, 1).gather(1, targets.clamp_min(0).unsqueeze(1)).squeeze(1);
    const at::Tensor weighted =
        at::where(targets.ge(0), log_probs * batch.columns[0], at::zeros_like(log_probs));
    const at::Tensor document = at::cumsum(batch.positions.eq(0), 0) - 1;
    return of_sums(at::zeros({batch.cu_seqlens.size(0) - 1}, weighted.options())
                       .index_add(0, document, weighted),
                   batch);
  }
};

// What these objectives read, drawn; the samples become groups of so many documents.
inline void add_columns(data::SampleStore& samples, int64_t documents_per_sample) {
  std::mt19937 random(3);
  const auto numbers = [&](int64_t count) {
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<float>(random() % 1000) / 1000.0F);
    return values;
  };
  samples.set_columns({{.is_per_target = true, .values = numbers(samples.total_tokens())},
                       {.values = numbers(samples.count())}});
  samples.group(documents_per_sample);
}

}  // namespace snug::tests
