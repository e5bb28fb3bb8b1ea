// config.json, read and written.
// SPDX-License-Identifier: Apache-2.0
#include "models/llama/config.h"

#include <cmath>

#include "base/error.h"
#include "models/config_fields.h"

namespace snug::models::llama {
namespace {

using nlohmann::json;

constexpr const char* kSliding = "sliding_attention";
constexpr const char* kFull = "full_attention";
constexpr int64_t kUnsaidWindow = 4096;    // of Mistral and Qwen2 in transformers
constexpr int64_t kQwen2FirstWindow = 28;  // max_window_layers there

kernels::cpu::RopeType rope_type(const std::string& type, const std::string& where) {
  using kernels::cpu::RopeType;
  if (type == "default" || type == "none") return RopeType::None;
  if (type == "linear") return RopeType::Linear;
  if (type == "dynamic") return RopeType::Dynamic;
  if (type == "llama3") return RopeType::Llama3;
  if (type == "yarn") return RopeType::Yarn;
  if (type == "longrope" || type == "su") return RopeType::LongRope;
  throw UserError(
      "{}: rope scaling of type \"{}\" is unknown; supported are linear, dynamic, llama3, yarn and "
      "longrope",
      where, type);
}

void read_rope(Config& config, const json& root, const std::string& where) {
  const ConfigFields top(root, where);
  config.rope.base = top.number("rope_theta", 10000.0);
  // transformers 5 writes rope_parameters, rope_theta included; earlier versions rope_scaling.
  const char* key = top.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!top.has(key)) return;
  if (!root[key].is_object()) throw UserError("{}: \"{}\" is not an object", where, key);
  const ConfigFields rope(root[key], where + ": " + key);
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  config.rope.base = rope.number("rope_theta", config.rope.base);
  config.rope.type = rope_type(type, where);
  if (config.rope.type == kernels::cpu::RopeType::None) return;
  config.rope_scaling_json = root[key];
  config.rope_scaling_json.erase("rope_theta");
  config.rope.factor = rope.number("factor", 1.0);
  config.rope.low_freq_factor = rope.number("low_freq_factor", 1.0);
  config.rope.high_freq_factor = rope.number("high_freq_factor", 4.0);
  // Some configs have it outside the scaling object.
  config.rope.original_max_position =
      rope.integer("original_max_position_embeddings",
                   top.integer("original_max_position_embeddings", config.max_position_embeddings));
  if ((config.rope.type == kernels::cpu::RopeType::LongRope ||
       config.rope.type == kernels::cpu::RopeType::Yarn) &&
      !rope.has("factor") && config.rope.original_max_position > 0)
    config.rope.factor = static_cast<double>(config.max_position_embeddings) /
                         static_cast<double>(config.rope.original_max_position);
  config.rope.beta_fast = rope.number("beta_fast", 32.0);
  config.rope.beta_slow = rope.number("beta_slow", 1.0);
  config.rope.truncate = rope.boolean("truncate", true);
  config.rope.mscale = rope.number("mscale", 0.0);
  config.rope.mscale_all_dim = rope.number("mscale_all_dim", 0.0);
  config.rope.attention_factor = rope.number("attention_factor", 0.0);
  config.rope.short_factor = rope.numbers("short_factor");
  config.rope.long_factor = rope.numbers("long_factor");
}

// The family or the config decides which projections have biases.
void read_biases(Config& config, const ConfigFields& fields) {
  const bool attention = fields.boolean("attention_bias", false);
  config.qkv_bias = config.model_type == "qwen2" || attention;
  config.output_bias = config.model_type == "llama" && attention;
  config.mlp_bias = fields.boolean("mlp_bias", false);
}

// transformers 5 lists each layer's type; before, layers from max_window_layers on have the sliding
// window.
void read_sliding_layers(Config& config, const json& root, const ConfigFields& fields) {
  const int64_t first = fields.integer("max_window_layers", kQwen2FirstWindow);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    config.layer_slides.push_back(layer >= first);
  if (!fields.has("layer_types")) return;
  const json& types = root["layer_types"];
  if (!types.is_array() || std::ssize(types) != config.num_hidden_layers)
    throw UserError("{}: \"layer_types\" is not a list of {} layers (num_hidden_layers)",
                    fields.where(), config.num_hidden_layers);
  for (size_t layer = 0; layer < types.size(); ++layer) {
    if (types[layer] != kSliding && types[layer] != kFull)
      throw UserError("{}: \"layer_types\" contains {}; supported are \"{}\" and \"{}\"",
                      fields.where(), types[layer].dump(), kFull, kSliding);
    config.layer_slides[layer] = types[layer] == kSliding;
  }
}

void read_sliding_window(Config& config, const json& root, const ConfigFields& fields) {
  // null means no window; if the key is absent, transformers uses a default.
  const int64_t unsaid = root.contains("sliding_window") ? 0 : kUnsaidWindow;
  if (config.model_type == "mistral")
    config.sliding_window = fields.integer("sliding_window", unsaid);
  if (config.model_type != "qwen2" || !fields.boolean("use_sliding_window", false)) return;
  config.sliding_window = fields.integer("sliding_window", unsaid);
  if (config.sliding_window > 0) read_sliding_layers(config, root, fields);
}

// Writes both forms that read_sliding_layers reads, for old and new transformers.
void write_sliding_layers(const Config& config, json& out) {
  out["use_sliding_window"] = config.sliding_window > 0;
  json types = json::array();
  int64_t first = config.num_hidden_layers;
  for (int64_t layer = config.num_hidden_layers; layer-- > 0;)
    if (config.window_of(layer) > 0) first = layer;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    types.push_back(config.window_of(layer) > 0 ? kSliding : kFull);
  if (config.sliding_window > 0) out["max_window_layers"] = first;
  out["layer_types"] = std::move(types);
}

const char* architecture(const std::string& model_type) {
  if (model_type == "mistral") return "MistralForCausalLM";
  if (model_type == "qwen2") return "Qwen2ForCausalLM";
  return "LlamaForCausalLM";
}

}  // namespace

Config from_hugging_face(const json& root, const std::string& where) {
  const ConfigFields fields(root, where);
  Config config;
  config.model_type = fields.text("model_type");
  if (config.model_type != "llama" && config.model_type != "mistral" &&
      config.model_type != "qwen2")
    throw UserError(
        "{}: model_type \"{}\" is not supported; supported are llama, mistral and qwen2", where,
        config.model_type);
  const std::string activation = fields.text("hidden_act", "silu");
  if (activation != "silu")
    throw UserError("{}: hidden_act \"{}\" is not supported, only silu is", where, activation);
  config.vocab_size = fields.integer("vocab_size");
  config.hidden_size = fields.integer("hidden_size");
  config.intermediate_size = fields.integer("intermediate_size");
  config.num_hidden_layers = fields.integer("num_hidden_layers");
  config.num_attention_heads = fields.integer("num_attention_heads");
  config.num_key_value_heads = fields.integer("num_key_value_heads", config.num_attention_heads);
  if (config.num_attention_heads <= 0)
    throw UserError("{}: num_attention_heads = {} must be positive", where,
                    config.num_attention_heads);
  config.head_dim = fields.integer("head_dim", config.hidden_size / config.num_attention_heads);
  config.max_position_embeddings = fields.integer("max_position_embeddings", 2048);
  config.rms_norm_eps = fields.number("rms_norm_eps", 1e-6);
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  config.initializer_range = fields.number("initializer_range", 0.02);
  read_token_ids(config, root, where);
  read_biases(config, fields);
  read_sliding_window(config, root, fields);
  read_rope(config, root, where);
  check(config, where);
  return config;
}

void read_token_ids(Config& config, const json& root, const std::string& where) {
  const ConfigFields fields(root, where);
  config.bos_token_ids = fields.ids("bos_token_id");
  config.eos_token_ids = fields.ids("eos_token_id");
  config.pad_token_id = fields.integer("pad_token_id", -1);
}

json to_hugging_face(const Config& config) {
  json out{{"architectures", {architecture(config.model_type)}},
           {"model_type", config.model_type},
           {"vocab_size", config.vocab_size},
           {"hidden_size", config.hidden_size},
           {"intermediate_size", config.intermediate_size},
           {"num_hidden_layers", config.num_hidden_layers},
           {"num_attention_heads", config.num_attention_heads},
           {"num_key_value_heads", config.num_key_value_heads},
           {"head_dim", config.head_dim},
           {"hidden_act", "silu"},
           {"max_position_embeddings", config.max_position_embeddings},
           {"rms_norm_eps", config.rms_norm_eps},
           {"tie_word_embeddings", config.tie_word_embeddings},
           {"initializer_range", config.initializer_range},
           {"rope_theta", config.rope.base},
           {"rope_scaling", config.rope_scaling_json},
           {"attention_dropout", 0.0},
           {"use_cache", true},
           {"bos_token_id", ids_or_number(config.bos_token_ids)},
           {"eos_token_id", ids_or_number(config.eos_token_ids)}};
  if (config.pad_token_id >= 0) out["pad_token_id"] = config.pad_token_id;
  if (config.model_type == "llama") {
    out["attention_bias"] = config.qkv_bias;
    out["mlp_bias"] = config.mlp_bias;
  }
  if (config.model_type != "llama")
    out["sliding_window"] = config.sliding_window > 0 ? json(config.sliding_window) : json();
  if (config.model_type == "qwen2") write_sliding_layers(config, out);
  return out;
}

void check(const Config& c, const std::string& where) {
  const auto positive = [&](int64_t value, int64_t most, const char* key) {
    if (value <= 0 || value > most)
      throw UserError("{}: {} = {} is out of range (1 to {})", where, key, value, most);
  };
  positive(c.vocab_size, int64_t{1} << 24, "vocab_size");
  positive(c.hidden_size, int64_t{1} << 20, "hidden_size");
  positive(c.intermediate_size, int64_t{1} << 22, "intermediate_size");
  positive(c.num_hidden_layers, 4096, "num_hidden_layers");
  positive(c.num_attention_heads, 4096, "num_attention_heads");
  positive(c.num_key_value_heads, c.num_attention_heads, "num_key_value_heads");
  positive(c.head_dim, 256, "head_dim");
  positive(c.max_position_embeddings, int64_t{1} << 26, "max_position_embeddings");
  if (c.head_dim % 2 != 0)
    throw UserError("{}: head_dim = {} is odd; rotary embeddings need pairs", where, c.head_dim);
  if (c.num_attention_heads % c.num_key_value_heads != 0)
    throw UserError("{}: {} attention heads cannot share {} key-value heads evenly", where,
                    c.num_attention_heads, c.num_key_value_heads);
  if (!(c.rms_norm_eps > 0) || !(c.rms_norm_eps < 1))
    throw UserError("{}: rms_norm_eps = {} is out of range (0 to 1)", where, c.rms_norm_eps);
  if (!std::isfinite(c.rope.base) || c.rope.base <= 0)
    throw UserError("{}: rope_theta = {} must be positive", where, c.rope.base);
}

}  // namespace snug::models::llama
