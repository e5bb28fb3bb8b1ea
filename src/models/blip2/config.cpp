// SPDX-License-Identifier: Apache-2.0
#include "models/blip2/config.h"

#include <utility>

#include "base/error.h"
#include "models/config_fields.h"

namespace snug::models::blip2 {
namespace {

using nlohmann::json;

constexpr int64_t kMost = int64_t{1} << 20;  // larger than any real model's sizes
constexpr int64_t kMostLayers = 4096;

// EVA's ViT-g (Fang et al. 2022), in all published checkpoints.
constexpr vision::Form kEva = {.prefix = "vision_model.",
                               .class_token = true,
                               .fused_qkv = true,
                               .output = "projection",
                               .positions = "position_embedding"};
const vision::Config kVision = {.form = kEva,
                                .hidden_size = 1408,
                                .intermediate_size = 6144,
                                .num_hidden_layers = 39,
                                .num_attention_heads = 16,
                                .image_size = 224,
                                .patch_size = 14,
                                .hidden_act = "gelu"};

QFormerConfig read_qformer(const ConfigFields& fields, int64_t vision_size) {
  QFormerConfig c;
  c.hidden_size = fields.integer_between("hidden_size", 1, kMost, c.hidden_size);
  c.intermediate_size = fields.integer_between("intermediate_size", 1, kMost, c.intermediate_size);
  c.num_hidden_layers =
      fields.integer_between("num_hidden_layers", 1, kMostLayers, c.num_hidden_layers);
  c.num_attention_heads =
      fields.integer_between("num_attention_heads", 1, kMost, c.num_attention_heads);
  c.activation = ops::activation_of(fields.text("hidden_act", "gelu"), fields.where());
  c.layer_norm_eps = fields.number("layer_norm_eps", c.layer_norm_eps);
  c.hidden_dropout_prob = fields.probability("hidden_dropout_prob", c.hidden_dropout_prob);
  c.attention_probs_dropout_prob =
      fields.probability("attention_probs_dropout_prob", c.attention_probs_dropout_prob);
  c.cross_attention_frequency = fields.integer_between("cross_attention_frequency", 1, kMostLayers,
                                                       c.cross_attention_frequency);
  c.initializer_range = vision::deviation(fields, c.initializer_range);
  vision::check_heads(fields, c.hidden_size, c.num_attention_heads);
  const int64_t source = fields.integer("encoder_hidden_size", vision_size);
  if (source != vision_size)
    throw UserError("{}: encoder_hidden_size = {} must equal the vision model's hidden_size = {}",
                    fields.where(), source, vision_size);
  return c;
}

const json& part(const json& root, const char* key) {
  static const json kEmpty = json::object();
  return has_field(root, key) ? root[key] : kEmpty;
}

// The id of a picture's placeholder token. Configs from before transformers 4.46 lack it; then it
// is the id that their tokenizers got later.
int32_t picture_token(const ConfigFields& fields, const json& text, const std::string& where) {
  for (const char* key : {"image_token_index", "image_token_id"})
    if (fields.has(key))
      return static_cast<int32_t>(fields.integer_between(key, 0, int64_t{1} << 30));
  constexpr int64_t kOpt = 50265, kT5 = 32100;
  const ConfigFields language(text, where + ": text_config");
  const bool is_t5 = language.text("model_type", "opt") == "t5";
  const int64_t usual = is_t5 ? kT5 : kOpt;
  const int64_t rows = language.integer("vocab_size", is_t5 ? 32128 : 50272);
  if (rows <= usual)
    throw UserError(
        "{}: \"image_token_index\" is missing, and the usual {} is outside the vocabulary of {}; "
        "add the id of the token that stands for a picture",
        where, usual, rows);
  return static_cast<int32_t>(usual);
}

}  // namespace

Config from_hugging_face(const json& root, const std::string& where) {
  const ConfigFields fields(root, where);
  Config config{.root = root};
  config.num_query_tokens =
      fields.integer_between("num_query_tokens", 1, kMost, config.num_query_tokens);
  config.initializer_range = vision::deviation(fields, config.initializer_range);
  vision::Config usual = kVision;
  usual.initializer_range = config.initializer_range;
  config.vision = vision::read_config(
      ConfigFields(part(root, "vision_config"), where + ": vision_config"), std::move(usual));
  config.qformer =
      read_qformer(ConfigFields(part(root, "qformer_config"), where + ": qformer_config"),
                   config.vision.hidden_size);
  if (!fields.has("text_config")) throw UserError("{}: \"text_config\" is missing", where);
  config.text = root["text_config"];
  config.image_token_index = picture_token(fields, config.text, where);
  return config;
}

}  // namespace snug::models::blip2
