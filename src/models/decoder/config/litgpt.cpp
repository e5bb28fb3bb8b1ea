// LitGPT's model_config.yaml, read into the config.json that it stands for, and written.
// SPDX-License-Identifier: Apache-2.0
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "models/decoder/config.h"
#include "models/unread_tensors.h"

namespace snug::models::decoder {
namespace {

using nlohmann::json;

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
  // What other families of LitGPT have.
  for (const char* key : {"norm_qk", "post_attention_norm", "post_mlp_norm", "scale_embeddings",
                          "attention_logit_softcapping", "final_logit_softcapping"})
    if (root[key] && !root[key].IsNull() && root[key].as<std::string>("") != "false")
      throw UserError(
          "{}: {} is not supported in LitGPT's files; convert the model's Hugging Face "
          "directory instead",
          where, key);
  if (yaml_field<double>(root, "rotary_percentage", where, 0.25) != 1.0)
    throw UserError("{}: rotary_percentage other than 1.0 is not supported", where);
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
int64_t sliding_window(const YAML::Node& root, const std::string& where) {
  const auto window = yaml_field<int64_t>(root, "sliding_window_size", where, int64_t{0});
  if (window == 0) return 0;
  const auto placement =
      yaml_field<std::string>(root, "sliding_window_layer_placement", where, "all");
  if (placement != "all")
    throw UserError("{}: sliding_window_layer_placement \"{}\" is not supported, only all is",
                    where, placement);
  const auto slides =
      yaml_field<std::vector<int>>(root, "sliding_window_indices", where, std::vector<int>());
  if (std::ranges::any_of(slides, [](int slide) { return slide == 0; }))
    throw UserError("{}: sliding_window_indices leaves layers out, which is not supported", where);
  return window;
}

// The ids of special tokens. generation_config.json controls generation, so it takes precedence.
void read_token_ids_beside(const std::filesystem::path& folder, json& config) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::filesystem::path path = folder / name;
    if (!std::filesystem::exists(path)) continue;
    const json beside = json::parse(read_file(path, size_t{1} << 24), nullptr, false);
    if (!beside.is_object()) throw UserError("{} is not valid JSON", path.string());
    for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
      config[key] = beside.value(key, json());
    if (!config["eos_token_id"].is_null()) return;
  }
}

YAML::Node load(const std::string& where) {
  try {
    YAML::Node root = YAML::Load(read_file(where, size_t{1} << 20));
    if (!root.IsMap()) throw UserError("{} is not a YAML mapping", where);
    return root;
  } catch (const YAML::Exception& error) {
    throw UserError("{}:{}: {}", where, error.mark.line + 1, error.msg);
  }
}

}  // namespace

Config from_litgpt(const std::filesystem::path& path, const files::TensorSource& tensors) {
  const std::string where = path.string();
  const YAML::Node root = load(where);
  refuse_other_architectures(root, where);
  const auto whole = [&](const char* key, std::optional<int64_t> fallback = {}) {
    return yaml_field<int64_t>(root, key, where, fallback);
  };
  const bool bias = yaml_field<bool>(root, "bias", where, true);
  const bool qkv_bias = bias || yaml_field<bool>(root, "attn_bias", where, false);
  const int64_t window = sliding_window(root, where);
  const int64_t heads = whole("n_head");
  json config{{"model_type", "llama"},
              {"hidden_size", whole("n_embd")},
              {"num_hidden_layers", whole("n_layer")},
              {"num_attention_heads", heads},
              {"num_key_value_heads", whole("n_query_groups", heads)},
              {"intermediate_size", whole("intermediate_size")},
              {"vocab_size", whole("padded_vocab_size", whole("vocab_size", 0))},
              {"max_position_embeddings", whole("block_size", 2048)},
              {"rms_norm_eps", yaml_field<double>(root, "norm_eps", where, 1e-5)},
              {"rope_theta", yaml_field<double>(root, "rope_base", where, 10000.0)},
              {"tie_word_embeddings", is_tied(tensors)},
              {"attention_bias", bias},
              {"mlp_bias", bias}};
  if (root["head_size"] && !root["head_size"].IsNull()) config["head_dim"] = whole("head_size");
  if (qkv_bias && !bias) config["model_type"] = "qwen2";
  if (window > 0) {
    config["model_type"] = "mistral";
    config["sliding_window"] = window;
  }
  if (const YAML::Node adjust = root["rope_adjustments"]; adjust && adjust.IsMap()) {
    const auto number = [&](const char* key) { return yaml_field<double>(adjust, key, where); };
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", number("factor")},
                              {"low_freq_factor", number("low_freq_factor")},
                              {"high_freq_factor", number("high_freq_factor")},
                              {"original_max_position_embeddings",
                               yaml_field<int64_t>(adjust, "original_max_seq_len", where)}};
  }
  read_token_ids_beside(path.parent_path(), config);
  return read_config(config, where);
}

std::string to_litgpt(const Config& c) {
  if (c.rope.type != kernels::cpu::RopeType::None && c.rope.type != kernels::cpu::RopeType::Llama3)
    throw UserError("LitGPT's config cannot express this model's rotary scaling ({})",
                    c.json["rope_scaling"].dump());
  for (size_t layer = 0; layer < c.layers.size(); ++layer)
    if (c.layers[layer].sliding_window != c.sliding_window)
      throw UserError(
          "LitGPT's config would give layer {} a sliding window that it does not have; write a "
          "Hugging Face directory (--to hf)",
          layer);
  YAML::Emitter out;
  out << YAML::BeginMap;
  const auto field = [&out](const char* key, const auto& value) {
    out << YAML::Key << key << YAML::Value << value;
  };
  field("name", std::string(c.family->model_type));
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

}  // namespace snug::models::decoder
