// Reads and writes the config as LitGPT's model_config.yaml.
// SPDX-License-Identifier: Apache-2.0
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "models/llama/config.h"
#include "models/same_tensor.h"

namespace snug::models::llama {
namespace {

template <class T>
T yaml_field(const YAML::Node& root, const char* key, const std::string& where,
             std::optional<T> fallback = {}) {
  try {
    if (root[key] && !root[key].IsNull()) return root[key].as<T>();
  } catch (const YAML::Exception&) {
    throw UserError("{}: \"{}\" has a value of the wrong kind", where, key);
  }
  if (!fallback) throw UserError("{}: \"{}\" is missing", where, key);
  return *fallback;
}

void refuse_other_architectures(const YAML::Node& root, const std::string& where) {
  const auto norm = yaml_field<std::string>(root, "norm_class_name", where, "LayerNorm");
  const auto mlp = yaml_field<std::string>(root, "mlp_class_name", where, "GptNeoxMLP");
  if (norm != "RMSNorm" || mlp != "LLaMAMLP" ||
      yaml_field<bool>(root, "parallel_residual", where, true))
    throw UserError(
        "{}: only Llama-type models are supported (norm RMSNorm, mlp LLaMAMLP, no parallel "
        "residual); this one has norm {}, mlp {}",
        where, norm, mlp);
}

// LitGPT stores a tied head as a separate tensor and its config does not mention it, so the weights
// are compared.
bool is_tied(const files::TensorSource& tensors) {
  const files::TensorInfo* embedding = tensors.find("transformer.wte.weight");
  const files::TensorInfo* head = tensors.find("lm_head.weight");
  if (head == nullptr) return true;
  return embedding != nullptr && same_tensor(tensors, *embedding, *head);
}

// Newer LitGPT configs list whether each layer has the window; older ones name a pattern.
void read_sliding_window(Config& config, const YAML::Node& root, const std::string& where) {
  config.sliding_window = yaml_field<int64_t>(root, "sliding_window_size", where, int64_t{0});
  if (config.sliding_window == 0) return;
  config.model_type = "mistral";
  const auto placement =
      yaml_field<std::string>(root, "sliding_window_layer_placement", where, "all");
  if (placement != "all")
    throw UserError("{}: sliding_window_layer_placement \"{}\" is not supported, only all is",
                    where, placement);
  const auto slides =
      yaml_field<std::vector<int>>(root, "sliding_window_indices", where, std::vector<int>());
  if (std::ranges::any_of(slides, [](int slide) { return slide == 0; }))
    throw UserError("{}: sliding_window_indices leaves layers out, which is not supported", where);
}

// generation_config.json controls generation, so it takes precedence.
void read_token_ids_beside(const std::filesystem::path& folder, Config& config) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::filesystem::path path = folder / name;
    if (!std::filesystem::exists(path)) continue;
    const auto json = nlohmann::json::parse(read_file(path, size_t{1} << 24), nullptr, false);
    if (json.is_discarded()) throw UserError("{} is not valid JSON", path.string());
    read_token_ids(config, json, path.string());
    if (!config.eos_token_ids.empty()) return;
  }
}

}  // namespace

Config from_litgpt(const std::filesystem::path& path, const files::TensorSource& tensors) {
  const std::string where = path.string();
  YAML::Node root;
  try {
    root = YAML::Load(read_file(path, size_t{1} << 20));
  } catch (const YAML::Exception& error) {
    throw UserError("{}:{}: {}", where, error.mark.line + 1, error.msg);
  }
  if (!root.IsMap()) throw UserError("{} is not a YAML mapping", where);
  refuse_other_architectures(root, where);
  Config config;
  config.hidden_size = yaml_field<int64_t>(root, "n_embd", where);
  config.num_hidden_layers = yaml_field<int64_t>(root, "n_layer", where);
  config.num_attention_heads = yaml_field<int64_t>(root, "n_head", where);
  config.num_key_value_heads =
      yaml_field<int64_t>(root, "n_query_groups", where, config.num_attention_heads);
  if (config.num_attention_heads <= 0) throw UserError("{}: n_head must be positive", where);
  config.head_dim = yaml_field<int64_t>(root, "head_size", where,
                                        config.hidden_size / config.num_attention_heads);
  config.intermediate_size = yaml_field<int64_t>(root, "intermediate_size", where);
  config.vocab_size = yaml_field<int64_t>(
      root, "padded_vocab_size", where, yaml_field<int64_t>(root, "vocab_size", where, int64_t{0}));
  config.max_position_embeddings = yaml_field<int64_t>(root, "block_size", where, int64_t{2048});
  config.rms_norm_eps = yaml_field<double>(root, "norm_eps", where, 1e-5);
  config.rope.base = yaml_field<double>(root, "rope_base", where, 10000.0);
  const bool bias = yaml_field<bool>(root, "bias", where, true);
  config.qkv_bias = bias || yaml_field<bool>(root, "attn_bias", where, false);
  config.output_bias = bias;
  config.mlp_bias = bias;
  if (config.qkv_bias && !bias) config.model_type = "qwen2";
  read_sliding_window(config, root, where);
  if (yaml_field<double>(root, "rotary_percentage", where, 0.25) != 1.0)
    throw UserError("{}: rotary_percentage other than 1.0 is not supported", where);
  config.tie_word_embeddings = is_tied(tensors);
  read_token_ids_beside(path.parent_path(), config);
  if (const YAML::Node adjust = root["rope_adjustments"]; adjust && adjust.IsMap()) {
    config.rope.type = kernels::cpu::RopeType::Llama3;
    config.rope.factor = yaml_field<double>(adjust, "factor", where);
    config.rope.low_freq_factor = yaml_field<double>(adjust, "low_freq_factor", where);
    config.rope.high_freq_factor = yaml_field<double>(adjust, "high_freq_factor", where);
    config.rope.original_max_position = yaml_field<int64_t>(adjust, "original_max_seq_len", where);
    config.rope_scaling_json = {
        {"rope_type", "llama3"},
        {"factor", config.rope.factor},
        {"low_freq_factor", config.rope.low_freq_factor},
        {"high_freq_factor", config.rope.high_freq_factor},
        {"original_max_position_embeddings", config.rope.original_max_position}};
  }
  check(config, where);
  return config;
}

std::string to_litgpt(const Config& c) {
  if (c.rope.type != kernels::cpu::RopeType::None && c.rope.type != kernels::cpu::RopeType::Llama3)
    throw UserError("LitGPT's config cannot express this model's rotary scaling ({})",
                    c.rope_scaling_json.dump());
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer)
    if (c.window_of(layer) != c.sliding_window)
      throw UserError(
          "LitGPT's config would give layer {} a sliding window that it does not have; write a "
          "Hugging Face directory (--to hf)",
          layer);
  YAML::Emitter out;
  out << YAML::BeginMap;
  const auto field = [&out](const char* key, const auto& value) {
    out << YAML::Key << key << YAML::Value << value;
  };
  field("name", c.model_type);
  field("block_size", c.max_position_embeddings);
  field("vocab_size", c.vocab_size);
  field("padded_vocab_size", c.vocab_size);
  field("n_layer", c.num_hidden_layers);
  field("n_head", c.num_attention_heads);
  field("head_size", c.head_dim);
  field("n_embd", c.hidden_size);
  field("n_query_groups", c.num_key_value_heads);
  field("intermediate_size", c.intermediate_size);
  field("rotary_percentage", 1.0);
  field("rope_base", static_cast<int64_t>(c.rope.base));
  field("parallel_residual", false);
  field("bias", c.mlp_bias && c.output_bias && c.qkv_bias);
  if (c.qkv_bias && !c.mlp_bias) field("attn_bias", true);
  field("lm_head_bias", false);
  field("norm_class_name", "RMSNorm");
  field("norm_eps", c.rms_norm_eps);
  field("mlp_class_name", "LLaMAMLP");
  if (c.sliding_window > 0) {
    field("sliding_window_size", c.sliding_window);
    field("sliding_window_layer_placement", "all");
  }
  if (c.rope.type == kernels::cpu::RopeType::Llama3) {
    out << YAML::Key << "rope_adjustments" << YAML::Value << YAML::BeginMap;
    field("factor", c.rope.factor);
    field("low_freq_factor", c.rope.low_freq_factor);
    field("high_freq_factor", c.rope.high_freq_factor);
    field("original_max_seq_len", c.rope.original_max_position);
    out << YAML::EndMap;
  }
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

}  // namespace snug::models::llama
