// The Llama family as units: token embedding, blocks, and norm + head + loss.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "core/nn/linear.h"
#include "core/nn/precision.h"
#include "core/ops/attention/attention.h"
#include "models/llama/config.h"
#include "models/llama/rope.h"
#include "models/model.h"

namespace snug::models::llama {

// Shapes: N tokens, D hidden_size, H heads, K key-value heads, d head_dim, F intermediate_size,
// V vocab_size.

class Embedding final : public nn::Unit {
 public:
  explicit Embedding(const Config& config);
  nn::State forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;
  std::vector<nn::Parameter*> parameters() override { return {&weight_}; }
  nn::Parameter& weight() { return weight_; }

 private:
  nn::Parameter weight_;  // (V, D)
};

class Block final : public nn::Unit {
 public:
  Block(const Config& config, int64_t layer, const Rope& rope);
  nn::State forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;
  std::vector<nn::Parameter*> parameters() override;
  std::vector<nn::Linear*> linears() override;
  int64_t num_kv_heads() const { return k_.out_features() / config_.head_dim; }

 private:
  // (N, D) -> (N, D)
  at::Tensor attend(const at::Tensor& x, const nn::Batch& batch, const nn::Pass& pass) const;

  const Config& config_;
  int64_t layer_;
  const Rope& rope_;           // filled by Model::prepare
  nn::Parameter input_norm_;   // (D)
  nn::Parameter output_norm_;  // (D), before the MLP
  nn::Linear q_, k_, v_, o_;
  nn::Linear gate_, up_, down_;
};

class Head final : public nn::Unit {
 public:
  // `tied`: the embedding's weight, if the head shares it; null: the head has its own.
  Head(const Config& config, nn::Parameter* tied);
  nn::State forward(const nn::State& input, const nn::Batch& batch, const nn::Pass& pass) override;
  std::vector<nn::Parameter*> parameters() override;
  std::vector<nn::Parameter*> borrowed() override;
  std::vector<nn::Linear*> linears() override { return {&linear_}; }

 private:
  const Config& config_;
  nn::Parameter norm_;  // (D)
  nn::Linear linear_;   // (V, D)
};

class LlamaModel final : public Model {
 public:
  explicit LlamaModel(Config config);
  std::vector<nn::Unit*> units() override;
  Dimensions dimensions() const override;
  Placement placement(Layout layout, const nn::Parameter& parameter) const override;
  nlohmann::json hugging_face_config() const override { return to_hugging_face(config_); }
  std::string litgpt_config() const override { return to_litgpt(config_); }
  void write_gguf_config(files::GgufWriter& out) const override { to_gguf(config_, out); }
  std::map<std::string, std::vector<float>> gguf_constants() const override;
  double initializer_range() const override { return config_.initializer_range; }
  void prepare(at::Device device, int64_t max_seqlen) override;
  const Config& config() const { return config_; }

 private:
  Config config_;
  Rope rope_;
  std::unique_ptr<Embedding> embedding_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<Head> head_;
};

}  // namespace snug::models::llama
