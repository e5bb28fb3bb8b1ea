// The last unit of a model: hidden states become the vocabulary's logits. A family says what comes
// before the product (a norm, a factor); what becomes of it is the objective's business in training
// and the caller's in generation. Or they become scores of whole documents, for a few labels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "core/nn/linear.h"
#include "core/nn/unit.h"
#include "core/ops/loss/cross_entropy.h"

namespace snug::nn {

// The layer of a head that scores documents, as transformers names it.
inline constexpr const char* kScoreLayer = "score";

class Head : public Unit {
 public:
  // `tied`: the embedding's weight (V, D), if the head shares it; null: the head has its own.
  // `num_labels` above 0: the layer scores whole documents for as many labels instead
  // (kScoreLayer), and has neither a tied weight nor a form.
  Head(std::string name, const std::string& layer, int64_t features, int64_t vocabulary,
       Parameter* tied, const ops::LogitForm& form = {}, int64_t num_labels = 0);

  // Reads "hidden" (c, D). Returns "objective" (1), or "logits" (S, V) of each document's last
  // token where pass.output asks for them.
  State forward(const State& input, const Batch& batch, const Pass& pass) final;
  std::vector<Parameter*> borrowed() override;
  std::vector<Linear*> linears() override { return {&vocabulary_}; }

  // (V, D), or (labels, D)
  const Linear& vocabulary() const { return vocabulary_; }
  // What is done to the product before the softmax.
  const ops::LogitForm& form() const { return form_; }
  // Logits of hidden (N, D), (N, V) in pass.compute and with a gradient, for objectives that need
  // all of them at once. Throws UserError where ranks share the vocabulary.
  at::Tensor logits(const at::Tensor& hidden, const Pass& pass) const;
  // log softmax(logits)[target] of each row of the batch, (N) float32 with a gradient, on every
  // rank that shares the layer, also where `hidden` has this rank's rows only; 0 where there is no
  // target. The logits of all rows never exist at once.
  at::Tensor log_probs(const at::Tensor& hidden, const Batch& batch, const Pass& pass) const;

 protected:
  // What comes before the product. x (c, D) -> (c, D)
  virtual at::Tensor prepare(const at::Tensor& x, const Pass& pass) = 0;
  // What the model's own losses add to the objective's sum. `input` is the unit's.
  virtual at::Tensor with_own_losses(at::Tensor sum, const State& /*input*/, const Batch& /*batch*/,
                                     const Pass& /*pass*/) const {
    return sum;
  }

  Linear vocabulary_;

 private:
  friend class CrossEntropy;
  friend class Distillation;
  // The sum over all targets, float32 (1), with gradients of pass.gradient_scale times it, made at
  // once: it must be neither scaled nor added to anything.
  at::Tensor cross_entropy(const at::Tensor& hidden, const Batch& batch, const Pass& pass,
                           ops::CrossEntropyOptions options) const;

  ops::LogitForm form_;
};

}  // namespace snug::nn
