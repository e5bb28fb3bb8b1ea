// T5 (Raffel et al. 2020), T5 v1.1 and FLAN-T5, alone or as the language model of BLIP-2. Names as
// in config.json.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/ops/activation.h"
#include "files/weights/tensor_source.h"

namespace snug::models::t5 {

struct Config {
  int64_t vocab_size = 0;
  int64_t d_model = 0;
  int64_t d_kv = 0;
  int64_t d_ff = 0;
  int64_t num_layers = 0;  // of the encoder
  int64_t num_decoder_layers = 0;
  int64_t num_heads = 0;
  int64_t relative_attention_num_buckets = 0;
  int64_t relative_attention_max_distance = 0;
  double dropout_rate = 0;
  double layer_norm_epsilon = 0;
  double initializer_factor = 0;
  std::string feed_forward_proj;  // "relu", "gated-gelu", "gated-silu"
  bool is_gated = false;          // the same
  std::string dense_act_fn;       // "relu", "gelu_new", "gelu", "silu"
  ops::Activation activation = ops::Activation::Relu;
  // T5 ties the head to the embedding and scales the head's input; v1.1 and FLAN-T5 have a separate
  // head and do not scale.
  bool tie_word_embeddings = true;
  bool scale_decoder_outputs = true;
  int64_t pad_token_id = 0;
  std::vector<int64_t> eos_token_ids;
  int64_t decoder_start_token_id = 0;
};

// Absent keys take transformers' defaults. `files` (may be null) hold the tensors, named `prefix` +
// their name in T5's own files. They decide whether the head is tied, since transformers 5 writes
// tie_word_embeddings = true for every T5. Throws UserError naming `where` and the key.
Config from_hugging_face(const nlohmann::json& json, const std::string& where,
                         const files::TensorSource* files = nullptr,
                         const std::string& prefix = "");
nlohmann::json to_hugging_face(const Config& config);

}  // namespace snug::models::t5
