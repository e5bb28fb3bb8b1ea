// GPT-2 in GGUF files: its metadata and the names of its weights, as llama.cpp has them.
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "files/weights/gguf/gguf.h"
#include "models/gpt2/model.h"

namespace snug::models::gpt2 {
namespace {

// A key behind "gpt2.", and what it is in config.json and here.
struct Key {
  const char* gguf;
  const char* ours;
  int64_t Config::*member;
};

constexpr Key kKeys[] = {
    {"gpt2.block_count", "n_layer", &Config::n_layer},
    {"gpt2.context_length", "n_positions", &Config::n_positions},
    {"gpt2.embedding_length", "n_embd", &Config::n_embd},
    {"gpt2.feed_forward_length", "n_inner", &Config::n_inner},
    {"gpt2.attention.head_count", "n_head", &Config::n_head},
};
constexpr const char* kEpsilon = "gpt2.attention.layer_norm_epsilon";

constexpr std::pair<std::string_view, const char*> kNames[] = {
    {"transformer.wte", "token_embd"},
    {"transformer.wpe", "position_embd"},
    {"transformer.ln_f", "output_norm"},
    {"lm_head", "output"},
    {"ln_1", "attn_norm"},
    {"attn.c_attn", "attn_qkv"},
    {"attn.c_proj", "attn_output"},
    {"ln_2", "ffn_norm"},
    {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
};

constexpr std::string_view kLayers = "transformer.h.";

}  // namespace

// "transformer.h.0.attn.c_attn.bias" -> "blk.0.attn_qkv.bias"
std::string gguf_name(const std::string& name) {
  std::string block, layer = name;
  if (name.starts_with(kLayers)) {
    const size_t dot = name.find('.', kLayers.size()) + 1;
    block = "blk." + name.substr(kLayers.size(), dot - kLayers.size());
    layer = name.substr(dot);
  }
  const size_t kind = layer.rfind('.');
  for (const auto& [ours, theirs] : kNames)
    if (std::string_view(layer).substr(0, kind) == ours) return block + theirs + layer.substr(kind);
  throw InternalError(fmt::format("no name for {} in a GGUF file", name));
}

std::unique_ptr<Model> model_from_gguf(const files::GgufFile& file) {
  const files::TensorInfo* tokens = file.find("token_embd.weight");
  if (tokens == nullptr || tokens->shape.size() != 2)
    throw UserError("{}: tensor token_embd.weight is missing", file.describe());
  nlohmann::json config{{"vocab_size", tokens->shape[0]},
                        {"tie_word_embeddings", file.find("output.weight") == nullptr},
                        {"layer_norm_epsilon", file.short_number(kEpsilon)}};
  for (const auto& [gguf, ours, member] : kKeys) config[ours] = file.integer(gguf);
  for (const char* name : {"bos_token_id", "eos_token_id"})
    if (const std::string key = std::string("tokenizer.ggml.") + name; file.has(key))
      config[name] = file.integer(key);
  return std::make_unique<Gpt2Model>(from_hugging_face(config, file.describe()), false);
}

void write_gguf(const Config& config, files::GgufWriter& out) {
  if (config.activation != ops::Activation::GeluTanh || !config.scale_attn_weights ||
      config.scale_attn_by_inverse_layer_idx)
    throw UserError(
        "a GGUF file of a gpt2 model cannot say that activation_function is {}, scale_attn_weights "
        "{} and scale_attn_by_inverse_layer_idx {}; write a Hugging Face directory (--to hf)",
        config.activation_function, config.scale_attn_weights,
        config.scale_attn_by_inverse_layer_idx);
  out.set_text("general.architecture", "gpt2");
  for (const auto& [gguf, ours, member] : kKeys)
    out.set_u32(gguf, static_cast<uint32_t>(config.*member));
  out.set_u32("gpt2.vocab_size", static_cast<uint32_t>(config.vocab_size));
  out.set_f32(kEpsilon, static_cast<float>(config.layer_norm_epsilon));
}

}  // namespace snug::models::gpt2
