// OPT (Zhang et al. 2022), alone or as the language model of BLIP-2. Names as in config.json.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/ops/activation.h"

namespace snug::models::opt {

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

  int64_t head_dim() const { return hidden_size / num_attention_heads; }
  bool projects_words() const { return word_embed_proj_dim != hidden_size; }
  bool has_final_layer_norm() const { return do_layer_norm_before && !remove_final_layer_norm; }
};

// Absent keys take transformers' defaults; transformers omits defaults in nested configs. Throws
// UserError naming `where` and the key.
Config from_hugging_face(const nlohmann::json& json, const std::string& where);
nlohmann::json to_hugging_face(const Config& config);

}  // namespace snug::models::opt
