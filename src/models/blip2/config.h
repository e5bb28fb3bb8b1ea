// BLIP-2 (Li et al. 2023): a vision transformer, a Q-Former with a few learned queries that attend
// to its output, and a language model that reads the queries' results as tokens. Names as in
// config.json.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "core/ops/activation.h"
#include "models/vision/config.h"

namespace snug::models::blip2 {

// A BERT encoder (Devlin et al. 2019) over the queries, with cross-attention to the picture in
// every cross_attention_frequency-th layer.
struct QFormerConfig {
  int64_t hidden_size = 768;
  int64_t intermediate_size = 3072;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;
  ops::Activation activation = ops::Activation::Gelu;
  double layer_norm_eps = 1e-12;
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  int64_t cross_attention_frequency = 2;
  double initializer_range = 0.02;

  int64_t head_dim() const { return hidden_size / num_attention_heads; }
  bool looks_at_picture(int64_t layer) const { return layer % cross_attention_frequency == 0; }
  // The last layer with cross-attention.
  int64_t last_look() const {
    return (num_hidden_layers - 1) / cross_attention_frequency * cross_attention_frequency;
  }
};

struct Config {
  vision::Config vision;
  QFormerConfig qformer;
  int64_t num_query_tokens = 32;
  int32_t image_token_index = -1;
  double initializer_range = 0.02;
  nlohmann::json text;  // text_config
  nlohmann::json root;  // the whole file, to be written back
};

// Throw UserError naming the source and the field that is missing or out of range. text_config is
// only checked for presence: its family reads it.
Config from_hugging_face(const nlohmann::json& json, const std::string& where);

}  // namespace snug::models::blip2
