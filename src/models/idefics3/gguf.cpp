// Idefics3 and SmolVLM in GGUF files, as llama.cpp has them: the language model is the file of a
// Llama, the vision model and the connector are a second one. A file says neither which of the two
// families it is, which on pictures are the same network, nor the placeholder's id, which is found
// among the tokens.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "models/idefics3/model.h"

namespace snug::models::idefics3 {
namespace {

using nlohmann::json;

// A key of the second file, and what it is in vision_config and here.
struct Key {
  const char* gguf;
  const char* ours;
  int64_t vision::Config::*member;
};

constexpr Key kKeys[] = {
    {"clip.vision.image_size", "image_size", &vision::Config::image_size},
    {"clip.vision.patch_size", "patch_size", &vision::Config::patch_size},
    {"clip.vision.embedding_length", "hidden_size", &vision::Config::hidden_size},
    {"clip.vision.feed_forward_length", "intermediate_size", &vision::Config::intermediate_size},
    {"clip.vision.block_count", "num_hidden_layers", &vision::Config::num_hidden_layers},
    {"clip.vision.attention.head_count", "num_attention_heads",
     &vision::Config::num_attention_heads},
};
constexpr const char* kProjector = "clip.projector_type";
constexpr const char* kIdefics3 = "idefics3";
constexpr const char* kGelu = "clip.use_gelu";  // its form with tanh
constexpr const char* kEpsilon = "clip.vision.attention.layer_norm_epsilon";
constexpr const char* kWidth = "clip.vision.projection_dim";
constexpr const char* kScale = "clip.vision.projector.scale_factor";
constexpr const char* kLongestEdge = "clip.vision.preproc_image_size";
constexpr const char* kMean = "clip.vision.image_mean";
constexpr const char* kStd = "clip.vision.image_std";
constexpr std::string_view kActivation = "gelu_pytorch_tanh";
constexpr const char* kPlaceholder = "<image>";

constexpr std::pair<std::string_view, const char*> kNames[] = {
    {"embeddings.patch_embedding", "v.patch_embd"},
    {"embeddings.position_embedding", "v.position_embd"},
    {"post_layernorm", "v.post_ln"},
    {"layer_norm1", "ln1"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.out_proj", "attn_out"},
    {"layer_norm2", "ln2"},
    {"mlp.fc1", "ffn_up"},
    {"mlp.fc2", "ffn_down"},
};
constexpr std::string_view kConnector = "model.connector.modality_projection.proj.";
constexpr std::string_view kLayers = "encoder.layers.";

std::array<float, 3> three_numbers(const files::GgufFile& file, const char* key) {
  const std::vector<float> values = file.numbers(key);
  if (values.size() != 3)
    throw UserError("{}: {} has {} numbers; it needs three, for red, green and blue", file.label(),
                    key, values.size());
  return {values[0], values[1], values[2]};
}

int64_t placeholder(const files::GgufFile& language) {
  const std::vector<std::string>& tokens = language.texts("tokenizer.ggml.tokens");
  const auto found = std::ranges::find(tokens, kPlaceholder);
  if (found == tokens.end())
    throw UserError(
        "{}: none of its {} tokens is {}, which marks pictures; the file belongs to another model "
        "than the one that reads pictures beside it",
        language.label(), tokens.size(), kPlaceholder);
  return found - tokens.begin();
}

json vision_config(const files::GgufFile& pictures) {
  if (!pictures.boolean(kGelu, false))
    throw UserError("{}: {} is false; only {} is supported", pictures.label(), kGelu, kActivation);
  json config{{"hidden_act", kActivation}, {"layer_norm_eps", pictures.short_number(kEpsilon)}};
  for (const auto& [gguf, ours, member] : kKeys) config[ours] = pictures.integer(gguf);
  return config;
}

}  // namespace

// "model.vision_model.encoder.layers.0.mlp.fc1.bias" -> "v.blk.0.ffn_up.bias"
std::string gguf_name(const Config& config, const std::string& parameter) {
  std::string_view layer = parameter;
  if (layer.starts_with(kConnector))
    return "mm.model.fc." + std::string(layer.substr(kConnector.size()));
  layer.remove_prefix(std::string_view(config.vision.form.prefix).size());
  std::string block;
  if (layer.starts_with(kLayers)) {
    const size_t dot = layer.find('.', kLayers.size()) + 1;
    block = "v.blk." + std::string(layer.substr(kLayers.size(), dot - kLayers.size()));
    layer.remove_prefix(dot);
  }
  const size_t kind = layer.rfind('.');
  std::string_view name = layer.substr(0, kind);
  if (config.gguf_mlp_exchanged && name.starts_with("mlp."))
    name = name == "mlp.fc1" ? "mlp.fc2" : "mlp.fc1";
  for (const auto& [ours, theirs] : kNames)
    if (name == ours) return block + theirs + std::string(layer.substr(kind));
  throw InternalError(fmt::format("no name for {} in a GGUF file", parameter));
}

bool are_gguf_pictures(const files::GgufFile& pictures) {
  return pictures.text("general.architecture") == files::kPicturesArchitecture &&
         pictures.text(kProjector, "") == kIdefics3;
}

std::unique_ptr<Model> model_from_gguf(const files::GgufFile& language,
                                       const files::GgufFile& pictures) {
  const json text = decoder::from_gguf(language).json;
  if (const int64_t width = pictures.integer(kWidth); text["hidden_size"] != width)
    throw UserError(
        "{} is of a language model of {} features, but {} has {}: they belong to different models; "
        "move one of them to another folder",
        pictures.label(), width, language.label(), text["hidden_size"].dump());
  const json config{{"model_type", kIdefics3},
                    {"scale_factor", pictures.integer(kScale)},
                    {"image_token_id", placeholder(language)},
                    {"tie_word_embeddings", text["tie_word_embeddings"]},
                    {"text_config", text},
                    {"vision_config", vision_config(pictures)}};
  Config read = from_hugging_face(config, pictures.label());
  const files::TensorInfo* up = pictures.find("v.blk.0.ffn_up.weight");
  read.gguf_mlp_exchanged =
      up != nullptr && up->shape.size() == 2 && up->shape[0] == read.vision.hidden_size;
  auto model = std::make_unique<Idefics3Model>(std::move(read));
  model->set_pixels({.mean = three_numbers(pictures, kMean),
                     .std = three_numbers(pictures, kStd),
                     .longest_edge = pictures.integer(kLongestEdge, 0)});
  return model;
}

void write_gguf_pictures(const Config& config, const vision::Pixels& pixels, int64_t longest_side,
                         files::GgufWriter& out) {
  const vision::Config& c = config.vision;
  if (c.activation != ops::Activation::GeluTanh)
    throw UserError(
        "a GGUF file of a {} model cannot say that vision_config.hidden_act is {}, only {}; write "
        "a Hugging Face directory (--to hf)",
        config.family.model_type, c.hidden_act, kActivation);
  if (!pixels.cuts)
    warn(
        "the model's pictures are not cut into tiles (do_image_splitting), which a GGUF file has "
        "no key for: a program that reads it cuts them");
  out.set_text("general.architecture", files::kPicturesArchitecture);
  out.set_bool("clip.has_vision_encoder", true);
  out.set_text(kProjector, kIdefics3);
  out.set_bool(kGelu, true);
  for (const auto& [gguf, ours, member] : kKeys)
    out.set_u32(gguf, static_cast<uint32_t>(c.*member));
  out.set_u32(kWidth, static_cast<uint32_t>(config.text.hidden_size));
  out.set_u32(kScale, static_cast<uint32_t>(config.scale_factor));
  out.set_u32(kLongestEdge, static_cast<uint32_t>(longest_side));
  out.set_f32(kEpsilon, static_cast<float>(c.layer_norm_eps));
  out.set_f32s(kMean, pixels.mean);
  out.set_f32s(kStd, pixels.std);
}

}  // namespace snug::models::idefics3
