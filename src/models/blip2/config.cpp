// SPDX-License-Identifier: Apache-2.0
#include "models/blip2/config.h"

#include <cmath>

#include "base/error.h"
#include "models/config_fields.h"

namespace snug::models::blip2 {
namespace {

using nlohmann::json;

constexpr int64_t kMost = int64_t{1} << 20;  // larger than any real model's sizes
constexpr int64_t kMostLayers = 4096;

// Smallest useful standard deviation for random weights; published configs give 1e-10 for the
// vision model, whose weights are always loaded.
constexpr double kLeastDeviation = 1e-6;

double deviation(const ConfigFields& fields, double fallback) {
  const double found = fields.number("initializer_range", fallback);
  return found >= kLeastDeviation ? found : fallback;
}

void check_heads(const ConfigFields& fields, int64_t hidden_size, int64_t heads) {
  if (hidden_size % heads != 0)
    throw UserError("{}: hidden_size = {} is not a multiple of num_attention_heads = {}",
                    fields.where(), hidden_size, heads);
  constexpr int64_t kMostOfHead = 256;  // of the attention kernels
  if (hidden_size / heads > kMostOfHead)
    throw UserError("{}: heads of {} features (hidden_size / num_attention_heads); {} are the most",
                    fields.where(), hidden_size / heads, kMostOfHead);
}

VisionConfig read_vision(const ConfigFields& fields, double initializer_range) {
  VisionConfig c;
  c.hidden_size = fields.integer_between("hidden_size", 1, kMost, c.hidden_size);
  c.intermediate_size = fields.integer_between("intermediate_size", 1, kMost, c.intermediate_size);
  c.num_hidden_layers =
      fields.integer_between("num_hidden_layers", 1, kMostLayers, c.num_hidden_layers);
  c.num_attention_heads =
      fields.integer_between("num_attention_heads", 1, kMost, c.num_attention_heads);
  c.image_size = fields.integer_between("image_size", 1, kMost, c.image_size);
  c.patch_size = fields.integer_between("patch_size", 1, c.image_size, c.patch_size);
  c.activation = ops::activation_of(fields.text("hidden_act", "gelu"), fields.where());
  c.layer_norm_eps = fields.number("layer_norm_eps", c.layer_norm_eps);
  c.attention_dropout = fields.probability("attention_dropout", c.attention_dropout);
  c.qkv_bias = fields.boolean("qkv_bias", c.qkv_bias);
  c.initializer_range = deviation(fields, initializer_range);
  check_heads(fields, c.hidden_size, c.num_attention_heads);
  if (c.image_size % c.patch_size != 0)
    throw UserError("{}: image_size = {} is not a multiple of patch_size = {}", fields.where(),
                    c.image_size, c.patch_size);
  return c;
}

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
  c.initializer_range = deviation(fields, c.initializer_range);
  check_heads(fields, c.hidden_size, c.num_attention_heads);
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

std::array<float, 3> three_numbers(const ConfigFields& fields, const char* key,
                                   const std::array<float, 3>& fallback) {
  const std::vector<double> values = fields.numbers(key);
  if (values.empty()) return fallback;
  if (values.size() != 3)
    throw UserError("{}: {} has {} numbers; it needs three, for red, green and blue",
                    fields.where(), key, values.size());
  return {static_cast<float>(values[0]), static_cast<float>(values[1]),
          static_cast<float>(values[2])};
}

}  // namespace

Config from_hugging_face(const json& root, const std::string& where) {
  const ConfigFields fields(root, where);
  Config config{.root = root};
  config.num_query_tokens =
      fields.integer_between("num_query_tokens", 1, kMost, config.num_query_tokens);
  config.initializer_range = deviation(fields, config.initializer_range);
  config.vision = read_vision(ConfigFields(part(root, "vision_config"), where + ": vision_config"),
                              config.initializer_range);
  config.qformer =
      read_qformer(ConfigFields(part(root, "qformer_config"), where + ": qformer_config"),
                   config.vision.hidden_size);
  if (!fields.has("text_config")) throw UserError("{}: \"text_config\" is missing", where);
  config.text = root["text_config"];
  config.image_token_index = picture_token(fields, config.text, where);
  return config;
}

Pixels pixels_from(const json& root, const std::string& where) {
  const ConfigFields fields(root, where);
  constexpr double kUsual = 1.0 / 255;
  if (const double factor = fields.number("rescale_factor", kUsual);
      !fields.boolean("do_rescale", true) || std::abs(factor - kUsual) > 1e-9)
    throw UserError(
        "{}: the file scales pixels by {}; only 1/255 is supported (rescale_factor, do_rescale)",
        where, fields.boolean("do_rescale", true) ? factor : 1.0);
  if (!fields.boolean("do_normalize", true)) return {.mean = {0, 0, 0}, .std = {1, 1, 1}};
  Pixels pixels;
  pixels.mean = three_numbers(fields, "image_mean", pixels.mean);
  pixels.std = three_numbers(fields, "image_std", pixels.std);
  for (const float deviation : pixels.std)
    if (!(deviation > 0)) throw UserError("{}: image_std = {} must be positive", where, deviation);
  return pixels;
}

}  // namespace snug::models::blip2
