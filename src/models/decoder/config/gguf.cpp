// GGUF metadata, read into the config.json that it stands for, and written; keys as llama.cpp has
// them.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "models/decoder/config.h"
#include "models/decoder/config/gguf.h"

namespace snug::models::decoder {
namespace {

using nlohmann::json;

enum class Kind { Count, Number, Flag };

// A key of GGUF files, behind "<architecture>.", and of config.json. Those that a family lacks are
// neither read nor written.
struct Key {
  const char* gguf;
  const char* ours;
  Kind kind;
};

constexpr Key kKeys[] = {
    {"block_count", "num_hidden_layers", Kind::Count},
    {"context_length", "max_position_embeddings", Kind::Count},
    {"embedding_length", "hidden_size", Kind::Count},
    {"feed_forward_length", "intermediate_size", Kind::Count},
    {"feed_forward_length", "ffn_hidden_size", Kind::Count},
    {"expert_count", "num_experts", Kind::Count},
    {"expert_count", "num_local_experts", Kind::Count},
    {"expert_used_count", "num_experts_per_tok", Kind::Count},
    {"expert_feed_forward_length", "moe_intermediate_size", Kind::Count},
    {"expert_feed_forward_length", "intermediate_size", Kind::Count},
    {"attention.head_count", "num_attention_heads", Kind::Count},
    {"attention.head_count_kv", "num_key_value_heads", Kind::Count},
    {"attention.key_length", "head_dim", Kind::Count},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", Kind::Number},
    {"attention.layer_norm_epsilon", "norm_epsilon", Kind::Number},
    {"attention.layer_norm_epsilon", "layer_norm_eps", Kind::Number},
    {"attention.layer_norm_epsilon", "layer_norm_epsilon", Kind::Number},
    {"use_parallel_residual", "use_parallel_residual", Kind::Flag},
    {"rope.freq_base", "rope_theta", Kind::Number},
    {"rope.freq_base", "rotary_emb_base", Kind::Number},
    {"attn_logit_softcapping", "attn_logit_softcapping", Kind::Number},
    {"final_logit_softcapping", "final_logit_softcapping", Kind::Number},
    {"attention.sliding_window", "sliding_window", Kind::Count},
    {"embedding_scale", "embedding_multiplier", Kind::Number},
    {"residual_scale", "residual_multiplier", Kind::Number},
    {"logit_scale", "logits_scaling", Kind::Number},
    {"attention.scale", "attention_multiplier", Kind::Number},
};

bool has_key(const Family& family, const json& config, const Key& key) {
  const std::string_view ours = key.ours, gguf = key.gguf;
  if (ours == "num_local_experts" && config.contains("num_experts")) return false;
  if (ours == "intermediate_size" && gguf == "expert_feed_forward_length")
    return family.fused_experts;
  return config.contains(ours) && (family.gguf_window || ours != "sliding_window");
}

const Family& family_of(const files::GgufFile& file, std::set<std::string_view> known) {
  const std::string architecture = file.text("general.architecture");
  // llama.cpp has mistral3 for every text model of Mistral 3; Ministral 3's scale queries.
  if (architecture == "mistral3" && !file.has(gguf_key(file, kGgufTemperature)))
    return *find_family("mistral");
  const Family* found = nullptr;
  for (const Family& family : families()) {
    if (!family.gguf.empty()) known.insert(family.gguf);
    if (family.gguf != architecture ||
        is_mixture(family) != (file.integer(gguf_key(family, "expert_count"), 0) > 0))
      continue;
    if (found == nullptr ||
        (family.gguf_window && file.has(gguf_key(family, "attention.sliding_window"))))
      found = &family;
  }
  if (found != nullptr) return *found;
  if (known.contains(architecture))
    throw UserError(
        "{}: a model of the architecture \"{}\" {} is not supported; see docs/guide/families.md",
        file.describe(), architecture,
        file.integer(architecture + ".expert_count", 0) > 0 ? "with experts" : "without experts");
  throw UserError("{}: architecture \"{}\" is not supported; supported are {}", file.describe(),
                  architecture, fmt::join(known, ", "));
}

void read_tensors(const files::GgufFile& file, json& config) {
  const files::TensorInfo* embedding = file.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2)
    throw UserError("{}: tensor token_embd.weight is missing", file.describe());
  config["vocab_size"] = embedding->shape[0];
  config["tie_word_embeddings"] = file.find("output.weight") == nullptr;
  const bool has_bias =
      file.find("blk.0.attn_q.bias") != nullptr || file.find("blk.0.attn_qkv.bias") != nullptr;
  for (const char* key : {"attention_bias", "use_bias", "use_qkv_bias"})
    if (config.contains(key)) config[key] = has_bias;
  if (config.contains("mlp_bias")) config["mlp_bias"] = file.find("blk.0.ffn_gate.bias") != nullptr;
}

// Falcon's kind is in no key: the number of keys and that of norms tell.
void read_falcon(const files::GgufFile& file, json& config) {
  if (!config.contains("num_kv_heads")) return;
  const int64_t keys = file.integer(gguf_key(file, "attention.head_count_kv"), 1);
  const bool has_two_norms = file.find("blk.0.attn_norm_2.weight") != nullptr;
  const bool is_grouped = keys > 1 || has_two_norms;
  config["new_decoder_architecture"] = is_grouped;
  if (is_grouped) config["num_ln_in_parallel_attn"] = has_two_norms ? 2 : 1;
  config["num_kv_heads"] = is_grouped ? json(keys) : config["num_attention_heads"];
}

void read_token_ids(const files::GgufFile& file, json& config) {
  const auto id = [&](const char* name) -> json {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    return file.has(key) ? json(file.integer(key)) : json();
  };
  config["bos_token_id"] = id("bos");
  config["eos_token_id"] = id("eos");
  config["pad_token_id"] = id("padding");
  if (const json end_of_turn = id("eot"); !end_of_turn.is_null())
    config["eos_token_id"] = config["eos_token_id"].is_null()
                                 ? end_of_turn
                                 : json::array({config["eos_token_id"], end_of_turn});
}

// Which layers have the window or rotate is in no key: llama.cpp knows it by the family.
void check_layers(const Config& c) {
  json usual = c.json;
  for (const char* key :
       {"layer_types", "sliding_window_pattern", "no_rope_layers", "no_rope_layer_interval"})
    if (usual.contains(key)) usual[key] = default_config(*c.family)[key];
  // llama.cpp's EXAONE 4 has windows if it has 64 layers.
  if (c.family->window_rope == WindowRope::Alone && c.num_hidden_layers != 64)
    usual["sliding_window"] = nullptr;
  else if (c.family->window_rope == WindowRope::Alone && usual["sliding_window"].is_null())
    usual["sliding_window"] = 4096;
  const Config of_family = read_config(usual, "the model's config");
  for (size_t layer = 0; layer < c.layers.size(); ++layer) {
    const bool same_window = !c.family->gguf_window || c.layers[layer].sliding_window ==
                                                           of_family.layers[layer].sliding_window;
    if (!same_window || c.layers[layer].rotation != of_family.layers[layer].rotation)
      throw UserError(
          "a GGUF file of a {} model cannot say which window and rotary embeddings layer {} has; "
          "write a Hugging Face directory (--to hf)",
          c.family->model_type, layer);
  }
}

// What llama.cpp takes for granted of an architecture, without a key that could say otherwise.
struct Granted {
  std::string_view gguf;
  const char* key;
  json value;
};

const std::vector<Granted>& granted() {
  static const std::vector<Granted> all = {
      {"gemma3", "rope_local_base_freq", 10000.0},
      // How experts' weights are made of the router's: as shares of those that a token is routed
      // to, or of all.
      {"qwen3moe", "norm_topk_prob", true},
      {"olmoe", "norm_topk_prob", false},
      {"gpt-oss", "swiglu_limit", 7.0},
      {"gpt-oss", "swiglu_alpha", 1.702},
      {"gpt-oss", "attention_bias", true},
      {"gpt-oss", "tie_word_embeddings", false},
      {"gptneox", "attention_bias", true},
      {"gptneox", "tie_word_embeddings", false},
      {"stablelm", "tie_word_embeddings", false},
      {"falcon", "parallel_attn", true},
      {"falcon", "bias", false},
  };
  return all;
}

void check_granted(const Config& c) {
  const json defaults = default_config(*c.family);
  const std::string usual = defaults.value("activation", defaults["hidden_act"]);
  if (c.activation != ops::activation_of(usual, "hidden_act"))
    throw UserError(
        "a GGUF file of a {} model cannot say that its activation is not {}; write a Hugging Face "
        "directory (--to hf)",
        c.family->model_type, usual);
  for (const auto& [gguf, key, value] : granted())
    if (gguf == c.family->gguf && c.json[key] != value)
      throw UserError(
          "a GGUF file of a {} model cannot say that {} is {}; write a Hugging Face directory "
          "(--to hf)",
          c.family->model_type, key, c.json[key].dump());
}

void check_experts(const Config& c) {
  if (!is_mixture(*c.family)) return;
  if (c.family->gguf == "olmoe" && c.num_key_value_heads != c.num_attention_heads)
    throw UserError(
        "llama.cpp reads no {} model whose heads share keys, as those of {} heads do here; write a "
        "Hugging Face directory (--to hf)",
        c.family->model_type, c.num_attention_heads);
  for (size_t layer = 0; layer < c.layers.size(); ++layer)
    if (!c.layers[layer].experts)
      throw UserError(
          "a GGUF file of a {} model cannot say that layer {} has no experts; write a Hugging Face "
          "directory (--to hf)",
          c.family->model_type, layer);
}

// Gemma's scale of scores is in no key either: llama.cpp knows the largest models, by their layers,
// whose heads it does not go by.
int64_t usual_query_scalar(const json& config) {
  const int64_t layers = config["num_hidden_layers"];
  const bool is_largest = layers == (config["model_type"] == "gemma2" ? 46 : 62);
  if (!is_largest && !config["head_dim"].is_null()) return config["head_dim"];
  return config["hidden_size"].get<int64_t>() / config["num_attention_heads"].get<int64_t>();
}

void check_query_scalar(const Config& c) {
  if (c.json.contains("query_pre_attn_scalar") &&
      c.json["query_pre_attn_scalar"] != usual_query_scalar(c.json))
    throw UserError(
        "a GGUF file of a {} model cannot say that query_pre_attn_scalar is {}; write a Hugging "
        "Face directory (--to hf)",
        c.family->model_type, c.json["query_pre_attn_scalar"].dump());
}

}  // namespace

std::string gguf_key(const Family& family, std::string_view name) {
  return fmt::format("{}.{}", family.gguf, name);
}

std::string gguf_key(const files::GgufFile& file, std::string_view name) {
  return fmt::format("{}.{}", file.text("general.architecture"), name);
}

namespace {

// The smallest factor that makes `part` of `whole` again, rounded down as configs are read.
double share_of(int64_t part, int64_t whole) {
  double factor = static_cast<double>(part) / static_cast<double>(whole);
  while (static_cast<int64_t>(static_cast<double>(whole) * factor) < part)
    factor = std::nextafter(factor, 2.0);
  return factor;
}

}  // namespace

Config from_gguf(const files::GgufFile& file, std::set<std::string_view> others) {
  const Family& family = family_of(file, std::move(others));
  json config = default_config(family);
  for (const Key& key : kKeys) {
    const std::string name = gguf_key(file, key.gguf);
    if (!has_key(family, config, key) || !file.has(name)) continue;
    if (key.kind == Kind::Flag)
      config[key.ours] = file.boolean(name);
    else if (key.kind == Kind::Count)
      config[key.ours] = file.integer(name);
    else
      config[key.ours] = file.short_number(name);
  }
  for (const auto& [gguf, key, value] : granted())
    if (gguf == family.gguf) config[key] = value;
  if (!family.gguf_window && config.contains("sliding_window") &&
      !config.contains("use_sliding_window"))
    config["sliding_window"] = nullptr;
  // Absent where it is what the sizes give, whatever transformers assumes.
  if (!file.has(gguf_key(file, "attention.key_length"))) config["head_dim"] = nullptr;
  if (family.window_rope == WindowRope::Alone &&
      !file.has(gguf_key(file, "attention.sliding_window")))
    config["sliding_window"] = nullptr;
  if (const std::string name = gguf_key(file, "rope.dimension_count");
      config.contains("partial_rotary_factor") && file.has(name)) {
    const int64_t heads = config["num_attention_heads"], width = config["hidden_size"];
    for (const char* key : {"partial_rotary_factor", "rotary_pct"})
      if (config.contains(key)) config[key] = share_of(file.integer(name), width / heads);
  }
  if (const std::string name = gguf_key(file, "rope.scaling.original_context_length");
      !config["original_max_position_embeddings"].is_null() && file.has(name))
    config["original_max_position_embeddings"] = file.integer(name);
  if (config.contains("query_pre_attn_scalar"))
    config["query_pre_attn_scalar"] = usual_query_scalar(config);
  read_tensors(file, config);
  read_falcon(file, config);
  read_token_ids(file, config);
  config["rope_scaling"] = gguf_rope_scaling(file, family, config);
  return read_config(config, file.describe());
}

void to_gguf(const Config& c, files::GgufWriter& out) {
  if (c.family->gguf.empty())
    throw UserError(
        "snug does not write GGUF files of {} models; write a Hugging Face directory (--to hf)",
        c.family->model_type);
  check_layers(c);
  check_experts(c);
  check_granted(c);
  check_query_scalar(c);
  const std::string architecture(c.family->gguf);
  if (c.sliding_window > 0 && !c.family->gguf_window)
    warn(
        "GGUF's {} architecture has no sliding window: beyond {} tokens a program that reads the "
        "file attends to more tokens than the model did in training",
        architecture, c.sliding_window);
  out.set_text("general.architecture", architecture);
  const bool usual_heads = c.head_dim * c.num_attention_heads == c.hidden_size;
  for (const Key& key : kKeys) {
    const std::string name = gguf_key(*c.family, key.gguf);
    if (!has_key(*c.family, c.json, key) || c.json[key.ours].is_null()) continue;
    if (std::string_view(key.ours) == "head_dim" && usual_heads) continue;
    if (key.kind == Kind::Flag)
      out.set_bool(name, c.json[key.ours].get<bool>());
    else if (key.kind == Kind::Count)
      out.set_u32(name, c.json[key.ours].get<uint32_t>());
    else
      out.set_f32(name, c.json[key.ours].get<float>());
  }
  const auto count = [&](const char* name, int64_t value) {
    out.set_u32(gguf_key(*c.family, name), static_cast<uint32_t>(value));
  };
  if (c.json.contains("num_kv_heads")) count("attention.head_count_kv", c.num_key_value_heads);
  if (!usual_heads) count("attention.value_length", c.head_dim);
  count("rope.dimension_count", c.rotated.dim);
  count("vocab_size", c.vocab_size);
  write_gguf_rope_scaling(c, out);
}

}  // namespace snug::models::decoder
