// What is learnt by scoring whole documents: the head has a row for each label, and a document's
// score is that of its last token. With s a document's scores, and c and r those of a pair's chosen
// and rejected answer:
//   classification  -log softmax(s)[label]
//   reward          -log sigmoid(c - r - margin) + center (c + r)^2
//                   Bradley and Terry 1952; Ouyang et al. 2022, equation 1; Eisenstein et al. 2023
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/nn/objective.h"

namespace snug::nn {

class DocumentScores : public Objective {
 public:
  // (S, D): each document's row that is scored, which its column "tokens" names.
  at::Tensor read(const at::Tensor& hidden, const Batch& batch) const override;

 protected:
  // The columns "tokens", how many a document has up to that row, shared ones too, and `number`.
  static BatchSpec spec(int64_t documents_per_sample, const char* number);
  // (S, labels) float32, of rows that read() returned.
  static at::Tensor scores(const at::Tensor& hidden, const Head& head, const Pass& pass);
};

// A document's column "label" is the number of its label.
class Classification final : public DocumentScores {
 public:
  BatchSpec batch() const override { return spec(1, "label"); }
  // The share of documents whose largest score is their label's.
  std::vector<std::string> figures() const override { return {"accuracy"}; }
  int64_t terms(const BatchCounts& counts) const override { return counts.documents; }
  at::Tensor sum(const at::Tensor& hidden, const Head& head, const Batch& batch,
                 const Pass& pass) const override;
};

// Of pairs: the chosen answer's document, then the rejected one's. Their column "margin" is by how
// much the chosen one shall be above.
class Reward final : public DocumentScores {
 public:
  // `center`: weight of the square of a pair's sum, which keeps rewards around 0.
  explicit Reward(double center) : center_(center) {}

  BatchSpec batch() const override { return spec(2, "margin"); }
  // The names that preferences have.
  std::vector<std::string> figures() const override {
    return {"rewards_chosen", "rewards_rejected", "rewards_accuracy", "rewards_margin"};
  }
  int64_t terms(const BatchCounts& counts) const override { return counts.documents / 2; }
  at::Tensor sum(const at::Tensor& hidden, const Head& head, const Batch& batch,
                 const Pass& pass) const override;

 private:
  double center_;
};

}  // namespace snug::nn
