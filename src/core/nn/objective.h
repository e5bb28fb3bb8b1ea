// What training minimises: a number made of the head's hidden states. The head hands over its input
// and its layer, the executor starts the backward from the gradient that the objective names, and
// steps and validation divide by the number of terms it counts; none of them knows which one it is.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/nn/unit.h"

namespace snug::nn {

class Head;

// What is known of a micro-batch before it runs.
struct BatchCounts {
  int64_t documents = 0;
  int64_t loss_tokens = 0;  // targets other than ignore_index
};

class Objective {
 public:
  virtual ~Objective() = default;

  // hidden (c, D): this rank's rows of the head's input, after its norm. Returns the sum of the
  // micro-batch's terms, float32 (1), without pass.gradient_scale.
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
// exist at once (core/ops/cross_entropy.h).
class CrossEntropy final : public Objective {
 public:
  struct Options {
    int64_t ignore_index = -100;
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

// The pass's objective, plain cross-entropy unless it names one.
const Objective& objective_of(const Pass& pass);

}  // namespace snug::nn
