// SPDX-License-Identifier: Apache-2.0
#include "models/idefics3/config.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "models/config_fields.h"

namespace snug::models::idefics3 {
namespace {

using nlohmann::json;

constexpr vision::Form kSiglip = {.prefix = "model.vision_model.",
                                  .class_token = false,
                                  .fused_qkv = false,
                                  .output = "out_proj",
                                  .positions = "position_embedding.weight"};
const vision::Config kVision = {.form = kSiglip,
                                .hidden_size = 1152,
                                .intermediate_size = 3072,
                                .num_hidden_layers = 12,
                                .num_attention_heads = 16,
                                .image_size = 224,
                                .patch_size = 32,
                                .hidden_act = "gelu_pytorch_tanh"};

// Llama, by the names that its weights have within these models.
const decoder::Family& language_family() {
  static const decoder::Family kLanguage = [] {
    decoder::Family family = *decoder::find_family("llama");
    family.in_litgpt = false;
    family.names.embedding = "model.text_model.embed_tokens";
    family.names.layers = "model.text_model.layers.";
    family.names.norm = "model.text_model.norm";
    return family;
  }();
  return kLanguage;
}

// What the programs that trained these models wrote into text_config for themselves: transformers
// has no place for it, and it changes nothing that is computed.
constexpr const char* kOfTheirTraining[] = {
    "_flash_attn_2_enabled", "is_llama_config",        "neftune_noise_alpha",
    "perceiver_config",      "pixel_shuffle_factor",   "qk_layer_norms",
    "rope_interleaved",      "transformers.js_config", "use_resampler"};

decoder::Config read_text(const json& root, const std::string& where) {
  json text = has_field(root, "text_config") ? root["text_config"] : json::object();
  const ConfigFields fields(text, where + ": text_config");
  if (const std::string type = fields.text("model_type", "llama"); type != "llama")
    throw UserError("{}: a language model of type \"{}\" is not supported; supported is llama",
                    fields.where(), type);
  for (const char* flag : {"qk_layer_norms", "rope_interleaved", "use_resampler"})
    if (fields.boolean(flag, false))
      throw UserError("{}: {} = true is not supported", fields.where(), flag);
  for (const char* key : kOfTheirTraining) text.erase(key);
  text["model_type"] = "llama";
  // transformers' value for this family, not Llama's own.
  if (!has_field(root, "text_config")) text["rms_norm_eps"] = 1e-5;
  text["tie_word_embeddings"] = ConfigFields(root, where).boolean("tie_word_embeddings", false);
  decoder::Config config = decoder::read_config(text, where + ": text_config");
  config.family = &language_family();
  return config;
}

// transformers finds a patch's position by its distance from the picture's edge, in float32. For
// some numbers of patches rounding gives two patches the same position; no published model has one.
bool each_patch_has_its_position(int64_t across) {
  const double step = 1.0 / static_cast<double>(across);
  const at::Tensor borders = at::arange(step, 1.0, step, at::kFloat);
  const at::Tensor patches = at::arange(across, at::kFloat);
  const at::Tensor distances =
      (patches * (1.0F / static_cast<float>(across))).clamp_max(1.0 - 1e-6);
  return at::equal(at::bucketize(distances, borders, /*out_int32=*/false, /*right=*/true),
                   at::arange(across, at::kLong));
}

void check_patches(const Config& c, const std::string& where) {
  const int64_t across = c.vision.patches_across();
  if (across % c.scale_factor != 0)
    throw UserError(
        "{}: pictures are {} patches wide, which is not a multiple of scale_factor = {}", where,
        across, c.scale_factor);
  if (!each_patch_has_its_position(across))
    throw UserError(
        "{}: pictures are {} patches wide (image_size / patch_size); for this number transformers "
        "gives two patches the same position, which is not supported",
        where, across);
}

}  // namespace

Config from_hugging_face(const json& root, const std::string& where) {
  static const json kEmpty = json::object();
  constexpr int64_t kMostAcross = 1024, kMostTokens = int64_t{1} << 30;
  const ConfigFields fields(root, where);
  const std::string type = fields.text("model_type");
  const auto* family = std::ranges::find(kFamilies, type, &Family::model_type);
  SNUG_CHECK(family != std::end(kFamilies), "{}: model_type {}", where, type);
  const json& vision = has_field(root, "vision_config") ? root["vision_config"] : kEmpty;
  Config config{
      .family = *family,
      .vision = vision::read_config(ConfigFields(vision, where + ": vision_config"), kVision),
      .text = read_text(root, where),
      .root = root};
  config.scale_factor = fields.integer_between("scale_factor", 1, kMostAcross, config.scale_factor);
  config.image_token_id = static_cast<int32_t>(
      fields.integer_between("image_token_id", 0, kMostTokens, config.image_token_id));
  if (config.image_token_id >= config.text.vocab_size)
    throw UserError("{}: image_token_id = {} is outside the vocabulary of {} tokens", where,
                    config.image_token_id, config.text.vocab_size);
  config.gguf_mlp_exchanged = config.vision.intermediate_size == config.vision.hidden_size;
  check_patches(config, where);
  return config;
}

}  // namespace snug::models::idefics3
