// OPT (Zhang et al. 2022), alone or as the language model of BLIP-2: its config, its units
// (embedding, blocks, and norm + head + loss) and its tensor names.
//
// Shapes: N tokens, D hidden_size, E word_embed_proj_dim, F ffn_dim, V vocab_size, P positions; c
// rows of hidden states as core/nn/functions.h says.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/nn/functions.h"
#include "core/nn/head.h"
#include "core/nn/linear.h"
#include "core/nn/unit.h"
#include "core/ops/activation.h"
#include "files/weights/tensor_source.h"
#include "models/model.h"
#include "models/score_head.h"

namespace snug::models::opt {

// Names as in config.json.
struct Config {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t word_embed_proj_dim = 0;  // width of embedding and head; smaller in opt-350m
  int64_t ffn_dim = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t max_position_embeddings = 0;
  bool do_layer_norm_before = true;  // false: after (opt-350m)
  bool remove_final_layer_norm = false;
  bool enable_bias = true;  // of the linear layers
  bool tie_word_embeddings = true;
  std::string activation_function;
  ops::Activation activation = ops::Activation::Relu;  // the same
  double dropout = 0;
  double attention_dropout = 0;
  double init_std = 0;
  std::vector<int64_t> bos_token_ids, eos_token_ids;
  int64_t pad_token_id = -1;
  std::vector<std::string>
      labels;  // for which the head scores documents; empty: a vocabulary's head

  int64_t head_dim() const { return hidden_size / num_attention_heads; }
  bool projects_words() const { return word_embed_proj_dim != hidden_size; }
  bool has_final_layer_norm() const { return do_layer_norm_before && !remove_final_layer_norm; }
};

// Absent keys take transformers' defaults; transformers omits defaults in nested configs. Throws
// UserError naming `where` and the key.
Config from_hugging_face(const nlohmann::json& json, const std::string& where);
nlohmann::json to_hugging_face(const Config& config);

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

std::unique_ptr<Model> make_model(const nlohmann::json& config, const std::string& where,
                                  const files::TensorSource* files);

class OptModel final : public Model {
 public:
  // Weights are named `prefix` + their name in OPT's own files. `files_omit`: a prefix of our names
  // that the files lack; empty: none.
  explicit OptModel(Config config, std::string files_omit = "", const std::string& prefix = "");
  std::vector<nn::Unit*> units() override;
  Dimensions dimensions() const override;
  std::vector<nn::SplitRow> split() const override;
  Placement placement(Layout layout, const nn::Parameter& parameter) const override;
  nlohmann::json hugging_face_config() const override { return to_hugging_face(config_); }
  data::Reading reads() const override { return reading_of(config_.labels, config_.pad_token_id); }
  std::vector<std::string> labels() const override { return config_.labels; }
  double initializer_range() const override { return config_.init_std; }
  // Throws UserError if max_seqlen exceeds the learned positions.
  void prepare(at::Device device, int64_t max_seqlen) override;
  void set_dropout(double probability) override;

 private:
  Config config_;
  std::string files_omit_;
  std::vector<std::unique_ptr<nn::Unit>> units_;
};

}  // namespace snug::models::opt
