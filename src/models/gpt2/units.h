// GPT-2 as units: embedding, blocks, and norm + head + loss.
//
// Shapes: N tokens, D n_embd, F n_inner, V vocab_size, P n_positions; c rows of hidden states
// as core/nn/functions.h says.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/nn/attention.h"
#include "core/nn/functions.h"
#include "core/nn/head.h"
#include "core/nn/linear.h"
#include "core/nn/unit.h"
#include "models/gpt2/config.h"

namespace snug::models::gpt2 {

class Embedding final : public nn::Unit {
 public:
  explicit Embedding(const Config& config);
  nn::State forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;
  std::vector<nn::Parameter*> parameters() override { return {&tokens_, &positions_}; }
  nn::Parameter& tokens() { return tokens_; }

 private:
  const Config& config_;
  nn::Parameter tokens_;     // (V, D)
  nn::Parameter positions_;  // (P, D)
};

class Block final : public nn::Unit {
 public:
  Block(const Config& config, int64_t layer);
  nn::State forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;
  std::vector<nn::Parameter*> parameters() override;
  std::vector<nn::Linear*> linears() override { return {&qkv_, &o_, &up_, &down_}; }

 private:
  // Each (c, D) -> (c, D), dropout included.
  at::Tensor attend(const at::Tensor& x, const nn::Batch& batch, const nn::Pass& pass) const;
  at::Tensor mlp(const at::Tensor& x, const nn::Batch& batch, const nn::Pass& pass) const;
  nn::AttentionOptions attention_options(const std::string& site) const;

  const Config& config_;
  int64_t layer_;
  nn::LayerNorm attention_norm_;
  nn::Linear qkv_, o_;  // q, k and v are one product: (3D, D)
  nn::LayerNorm mlp_norm_;
  nn::Linear up_, down_;
};

class Head final : public nn::Head {
 public:
  Head(const Config& config, nn::Parameter* tied);
  std::vector<nn::Parameter*> parameters() override;

 private:
  at::Tensor prepare(const at::Tensor& x, const nn::Pass& pass) override;

  nn::LayerNorm norm_;
};

}  // namespace snug::models::gpt2
