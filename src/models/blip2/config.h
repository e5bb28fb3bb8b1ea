// BLIP-2 (Li et al. 2023): a vision transformer, a Q-Former with a few learned queries that attend
// to its output, and a language model that reads the queries' results as tokens. Names as in
// config.json.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "core/ops/activation.h"

namespace snug::models::blip2 {

// In all published checkpoints EVA's ViT-g (Fang et al. 2022).
struct VisionConfig {
  int64_t hidden_size = 1408;
  int64_t intermediate_size = 6144;
  int64_t num_hidden_layers = 39;
  int64_t num_attention_heads = 16;
  int64_t image_size = 224;
  int64_t patch_size = 14;
  ops::Activation activation = ops::Activation::Gelu;
  double layer_norm_eps = 1e-6;
  double attention_dropout = 0;
  bool qkv_bias = true;
  double initializer_range = 0.02;

  int64_t num_patches() const { return (image_size / patch_size) * (image_size / patch_size); }
  int64_t num_positions() const { return num_patches() + 1; }  // with the class token
  int64_t head_dim() const { return hidden_size / num_attention_heads; }
};

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

// Normalization of pixels, from preprocessor_config.json; by default CLIP's (Radford et al. 2021).
struct Pixels {
  std::array<float, 3> mean{0.48145466F, 0.4578275F, 0.40821073F};
  std::array<float, 3> std{0.26862954F, 0.26130258F, 0.27577711F};
};

struct Config {
  VisionConfig vision;
  QFormerConfig qformer;
  Pixels pixels;
  int64_t num_query_tokens = 32;
  int32_t image_token_index = -1;
  double initializer_range = 0.02;
  nlohmann::json text;  // text_config
  nlohmann::json root;  // the whole file, to be written back
};

// Throw UserError naming the source and the field that is missing or out of range. text_config is
// only checked for presence: its family reads it.
Config from_hugging_face(const nlohmann::json& json, const std::string& where);
// The mean and deviation of a preprocessor_config.json.
Pixels pixels_from(const nlohmann::json& json, const std::string& where);

}  // namespace snug::models::blip2
