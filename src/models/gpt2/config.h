// GPT-2 (Radford et al. 2019), also in minGPT's sizes. Names as in config.json.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/ops/activation.h"

namespace snug::models::gpt2 {

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

  int64_t head_dim() const { return n_embd / n_head; }
};

// Absent keys take transformers' defaults. Throws UserError naming `where` and the key.
Config from_hugging_face(const nlohmann::json& json, const std::string& where);
nlohmann::json to_hugging_face(const Config& config);

}  // namespace snug::models::gpt2
