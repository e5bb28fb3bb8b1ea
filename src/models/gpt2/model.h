// GPT-2 (Radford et al. 2019), also in minGPT's sizes: its config, its units (embedding, blocks,
// and norm + head + loss) and its tensor names in Hugging Face's and GGUF files.
//
// Shapes: N tokens, D n_embd, F n_inner, V vocab_size, P n_positions; c rows of hidden states as
// core/nn/functions.h says.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/nn/attention.h"
#include "core/nn/functions.h"
#include "core/nn/head.h"
#include "core/nn/linear.h"
#include "core/nn/unit.h"
#include "core/ops/activation.h"
#include "files/weights/gguf/gguf.h"
#include "files/weights/tensor_source.h"
#include "models/model.h"
#include "models/score_head.h"

namespace snug::models::gpt2 {

// Names as in config.json.
struct Config {
  int64_t vocab_size = 0;
  int64_t n_positions = 0;
  int64_t n_embd = 0;
  int64_t n_layer = 0;
  int64_t n_head = 0;
  int64_t n_inner = 0;  // features of the MLP
  std::string activation_function;
  ops::Activation activation = ops::Activation::GeluTanh;  // the same
  double embd_pdrop = 0;
  double attn_pdrop = 0;
  double resid_pdrop = 0;
  double layer_norm_epsilon = 0;
  double initializer_range = 0;
  bool scale_attn_weights = true;                // by 1 / sqrt(head size)
  bool scale_attn_by_inverse_layer_idx = false;  // and by 1 / (layer + 1)
  bool tie_word_embeddings = true;
  std::vector<int64_t> bos_token_ids, eos_token_ids;
  int64_t pad_token_id = -1;
  std::vector<std::string>
      labels;  // for which the head scores documents; empty: a vocabulary's head

  int64_t head_dim() const { return n_embd / n_head; }
};

// Absent keys take transformers' defaults. Throws UserError naming `where` and the key.
Config from_hugging_face(const nlohmann::json& json, const std::string& where);
nlohmann::json to_hugging_face(const Config& config);

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

std::unique_ptr<Model> make_model(const nlohmann::json& config, const std::string& where,
                                  const files::TensorSource* files);

// GGUF files (gguf.cpp). Each throws UserError for what the other side has no place for.
std::string gguf_name(const std::string& parameter);
std::unique_ptr<Model> model_from_gguf(const files::GgufFile& file);
void write_gguf(const Config& config, files::GgufWriter& out);

class Gpt2Model final : public Model {
 public:
  // `bare_names`: tensor names in the files lack the prefix "transformer.".
  Gpt2Model(Config config, bool bare_names);
  std::vector<nn::Unit*> units() override;
  Dimensions dimensions() const override;
  std::vector<nn::SplitRow> split() const override;
  Placement placement(Layout layout, const nn::Parameter& parameter) const override;
  nlohmann::json hugging_face_config() const override { return to_hugging_face(config_); }
  data::Reading reads() const override { return reading_of(config_.labels, config_.pad_token_id); }
  std::vector<std::string> labels() const override { return config_.labels; }
  void write_gguf_config(files::GgufWriter& out) const override { write_gguf(config_, out); }
  double initializer_range() const override { return config_.initializer_range; }
  // Throws UserError if max_seqlen exceeds the learned positions.
  void prepare(at::Device device, int64_t max_seqlen) override;
  void set_dropout(double probability) override;

 private:
  Config config_;
  bool bare_names_;
  std::unique_ptr<Embedding> embedding_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<Head> head_;
};

}  // namespace snug::models::gpt2
