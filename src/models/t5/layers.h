// What T5's blocks are made of: attention and MLP, each with the norm before it and the dropout
// behind it.
//
// Shapes: N rows of the decoder, M of the source, c and e of them here: as many unless ranks share
// the layers (nn/functions.h); D d_model, H heads that are here, d d_kv, F d_ff, B buckets.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/t5/config.h"
#include "nn/attention.h"
#include "nn/functions.h"
#include "nn/linear.h"
#include "nn/unit.h"

namespace snug::models::t5 {

// Of a stack's biases, for attention: ops::AttentionContext.
struct RelativeBiases {
  at::Tensor table;      // (B, H)
  at::Tensor intervals;  // (2, B) where the device's kernels ask for them
};

nn::Parameter norm_weight(const Config& config, const std::string& name);

// The three kinds yield as many rows of D as x has, ready to be added to what was normed.
class Attention {
 public:
  // Weights are called `name` + "layer_norm" and `name` + `module` + ".q" and so on.
  Attention(const Config& config, const std::string& name, const std::string& module);

  // Of the decoder's x (c, D) to what came before; with a generation's cache of `layer`.
  at::Tensor causal(const at::Tensor& x, int64_t layer, const RelativeBiases& biases,
                    const nn::Batch& batch, const nn::Pass& pass) const;
  // Of the source's x (e, D) to all of the same document.
  at::Tensor full(const at::Tensor& x, const RelativeBiases& biases, const nn::Batch& batch,
                  const nn::Pass& pass) const;
  // Of the decoder's x (c, D) to the document's source.
  at::Tensor cross(const at::Tensor& x, const nn::SourceKeys& source, const nn::Batch& batch,
                   const nn::Pass& pass) const;
  // Of the encoder's output (M, D), which every rank has all of.
  nn::SourceKeys keys_of(const at::Tensor& source, const nn::Batch& batch,
                         const nn::Pass& pass) const;

  int64_t num_heads() const { return k_.out_features() / config_.d_kv; }  // that are here
  const nn::Parameter& norm() const { return norm_; }
  void list(std::vector<nn::Parameter*>& parameters);
  void list(std::vector<nn::Linear*>& linears);

 private:
  nn::AttentionOptions options(const RelativeBiases& biases = {}) const;
  at::Tensor heads(const at::Tensor& x) const;  // (rows, H·d) -> (rows, H, d)
  at::Tensor finish(const at::Tensor& mixed, const nn::Pass& pass) const;

  nn::Parameter norm_;  // (D)
  const Config& config_;
  std::string name_;
  nn::Linear q_, k_, v_, o_;
};

class FeedForward {
 public:
  FeedForward(const Config& config, const std::string& name);
  // x (c, D) of `num_rows` in all -> (c, D), ready to be added to what was normed.
  at::Tensor forward(const at::Tensor& x, int64_t num_rows, const nn::Pass& pass) const;

  const nn::Parameter& norm() const { return norm_; }
  void list(std::vector<nn::Parameter*>& parameters);
  void list(std::vector<nn::Linear*>& linears);

 private:
  nn::Parameter norm_;  // (D)
  const Config& config_;
  std::string name_;
  nn::Linear in_, out_;
  std::optional<nn::Linear> up_;  // beside in_, which then is its gate
};

}  // namespace snug::models::t5
