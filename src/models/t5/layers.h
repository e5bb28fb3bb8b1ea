// The attention and MLP of T5's blocks, each with its norm before and its dropout after.
//
// Shapes: N rows of the decoder, M of the source; c and e of them as core/nn/functions.h says; D
// d_model, H heads, d d_kv, F d_ff, B buckets.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/nn/attention.h"
#include "core/nn/functions.h"
#include "core/nn/linear.h"
#include "core/nn/unit.h"
#include "models/t5/config.h"

namespace snug::models::t5 {

// A stack's relative position biases: see ops::AttentionContext.
struct RelativeBiases {
  at::Tensor table;    // (B, H)
  at::Tensor buckets;  // ops::AttentionContext; if the device's kernels need them
};

nn::RmsNorm rms_norm(const Config& config, const std::string& name);

// All three kinds return a tensor shaped like x, to be added to the hidden states.
class Attention {
 public:
  // Weights are named `name` + "layer_norm", `name` + `module` + ".q" and so on.
  Attention(const Config& config, const std::string& name, const std::string& module);

  // Causal self-attention of the decoder's x (c, D); in a generation with the cache of `layer`.
  at::Tensor causal(const at::Tensor& x, int64_t layer, const RelativeBiases& biases,
                    const nn::Batch& batch, const nn::Pass& pass) const;
  // Bidirectional self-attention of the source's x (e, D) within each document.
  at::Tensor full(const at::Tensor& x, const RelativeBiases& biases, const nn::Batch& batch,
                  const nn::Pass& pass) const;
  // Cross-attention of the decoder's x (c, D) to the document's source.
  at::Tensor cross(const at::Tensor& x, const nn::SourceKeys& source, const nn::Batch& batch,
                   const nn::Pass& pass) const;
  // Cross-attention's keys and values from the encoder's whole output (M, D).
  nn::SourceKeys keys_of(const at::Tensor& source, const nn::Batch& batch,
                         const nn::Pass& pass) const;

  const nn::RmsNorm& norm() const { return norm_; }
  void list(std::vector<nn::Parameter*>& parameters);
  void list(std::vector<nn::Linear*>& linears);

 private:
  nn::AttentionOptions options(const RelativeBiases& biases = {}) const;
  at::Tensor heads(const at::Tensor& x) const;  // (rows, H·d) -> (rows, H, d)
  at::Tensor finish(const at::Tensor& mixed, const nn::Pass& pass) const;

  nn::RmsNorm norm_;
  const Config& config_;
  std::string name_;
  nn::Linear q_, k_, v_, o_;
};

class FeedForward {
 public:
  FeedForward(const Config& config, const std::string& name);
  // x (c, D of num_rows) -> (c, D), to be added to the hidden states.
  at::Tensor forward(const at::Tensor& x, int64_t num_rows, const nn::Pass& pass) const;

  const nn::RmsNorm& norm() const { return norm_; }
  void list(std::vector<nn::Parameter*>& parameters);
  void list(std::vector<nn::Linear*>& linears);

 private:
  nn::RmsNorm norm_;
  const Config& config_;
  std::string name_;
  nn::Linear in_, out_;
  std::optional<nn::Linear> up_;  // only with a gate, which then is in_
};

}  // namespace snug::models::t5
