// OPT as units: embedding, blocks, and norm + head + loss.
//
// Shapes: N tokens, D hidden_size, E word_embed_proj_dim, F ffn_dim, V vocab_size, P positions; c
// rows of hidden states as core/nn/functions.h says.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/nn/functions.h"
#include "core/nn/head.h"
#include "core/nn/linear.h"
#include "core/nn/unit.h"
#include "models/opt/config.h"

namespace snug::models::opt {

// Replaces the rows batch.picture_rows by the State's "picture" (R, E), if present.
class Embedding final : public nn::Unit {
 public:
  Embedding(const Config& config, const std::string& prefix);
  nn::State forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;
  std::vector<nn::Parameter*> parameters() override;
  std::vector<nn::Linear*> linears() override;
  nn::Parameter& tokens() { return tokens_; }

 private:
  nn::Parameter tokens_;     // (V, E)
  nn::Parameter positions_;  // (P + 2, D)
  std::optional<nn::Linear> project_in_;
};

class Block final : public nn::Unit {
 public:
  Block(const Config& config, const std::string& prefix, int64_t layer);
  nn::State forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;
  std::vector<nn::Parameter*> parameters() override;
  std::vector<nn::Linear*> linears() override { return {&q_, &k_, &v_, &o_, &fc1_, &fc2_}; }

 private:
  // Each (c, D) -> (c, D), dropout included.
  at::Tensor attend(const at::Tensor& x, const nn::Batch& batch, const nn::Pass& pass) const;
  at::Tensor mlp(const at::Tensor& x, const nn::Batch& batch, const nn::Pass& pass) const;

  const Config& config_;
  int64_t layer_;
  std::string name_;
  nn::Linear q_, k_, v_, o_;
  nn::LayerNorm attention_norm_;
  nn::Linear fc1_, fc2_;
  nn::LayerNorm final_norm_;
};

class Head final : public nn::Head {
 public:
  Head(const Config& config, const std::string& prefix, nn::Parameter* tied);
  std::vector<nn::Parameter*> parameters() override;
  std::vector<nn::Linear*> linears() override;

 private:
  at::Tensor prepare(const at::Tensor& x, const nn::Pass& pass) override;

  std::optional<nn::LayerNorm> norm_;
  std::optional<nn::Linear> project_out_;
};

// All units; weights are named `prefix` + their name in OPT's own files. `config` must outlive
// them.
std::vector<std::unique_ptr<nn::Unit>> make_units(const Config& config,
                                                  const std::string& prefix = "");

}  // namespace snug::models::opt
