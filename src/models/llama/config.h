// The architecture shared by Llama 1-3, TinyLlama, OpenLLaMA, SmolLM2, Mistral and Qwen2: these
// fields describe the differences. Names as in config.json.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/kernels/cpu/rope_tables.h"
#include "files/weights/gguf/gguf.h"

namespace snug::models::llama {

struct Config {
  std::string model_type = "llama";  // llama | mistral | qwen2
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;
  int64_t sliding_window = 0;      // 0: none
  std::vector<bool> layer_slides;  // by layer: whether it has the window; empty: all have
  double initializer_range = 0.02;
  kernels::cpu::RopeScaling rope;
  nlohmann::json rope_scaling_json;  // as read, to be written back; null if none
  std::vector<int64_t> bos_token_ids, eos_token_ids;
  int64_t pad_token_id = -1;

  int64_t window_of(int64_t layer) const {
    return layer_slides.empty() || layer_slides[static_cast<size_t>(layer)] ? sliding_window : 0;
  }
};

// Each throws UserError naming the source and the field that is missing or out of range.
Config from_hugging_face(const nlohmann::json& json, const std::string& where);
Config from_gguf(const files::GgufFile& file);
// The file says neither whether the head is tied nor which tokens are special: `tensors` and the
// Hugging Face files beside it do.
Config from_litgpt(const std::filesystem::path& model_config_yaml,
                   const files::TensorSource& tensors);
// The ids of special tokens, from a config.json or generation_config.json.
void read_token_ids(Config& config, const nlohmann::json& json, const std::string& where);
nlohmann::json to_hugging_face(const Config& config);
std::string to_litgpt(const Config& config);
// Writes all GGUF metadata about the model; and the values of the tensor rope_freqs.weight (empty:
// none).
void to_gguf(const Config& config, files::GgufWriter& out);
std::vector<float> gguf_rope_factors(const Config& config);

// Refuses sizes that cannot be a model: zero, not divisible, absurdly large.
void check(const Config& config, const std::string& where);

}  // namespace snug::models::llama
