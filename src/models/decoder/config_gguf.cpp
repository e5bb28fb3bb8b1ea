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

namespace snug::models::decoder {
namespace {

using kernels::cpu::RopeScaling;
using kernels::cpu::RopeType;
using nlohmann::json;

// Keys of YaRN, behind "<architecture>.rope.scaling.", and in config.json's rope_scaling.
constexpr std::pair<const char*, const char*> kYarnKeys[] = {
    {"yarn_beta_fast", "beta_fast"},
    {"yarn_beta_slow", "beta_slow"},
    {"yarn_log_multiplier", "mscale_all_dim"}};  // beside an mscale of 1
constexpr const char* kTemperature = "attention.temperature_scale";

constexpr int64_t kLlama3Positions = 8192;  // context of the pretraining of Llama 3.1 to 3.3

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

std::string key_of(const Family& family, std::string_view name) {
  return fmt::format("{}.{}", family.gguf, name);
}

std::string key_of(const files::GgufFile& file, std::string_view name) {
  return fmt::format("{}.{}", file.text("general.architecture"), name);
}

// GGUF stores Llama 3's scaling as factors: the divisor of each frequency.
std::vector<float> rope_factors(const RopeScaling& scaling, int64_t dim) {
  const RopeScaling plain{.base = scaling.base};
  const std::vector<float> before = kernels::cpu::rope_frequencies(plain, dim, 1).inverse;
  std::vector<float> factors = kernels::cpu::rope_frequencies(scaling, dim, 1).inverse;
  for (size_t i = 0; i < factors.size(); ++i) factors[i] = before[i] / factors[i];
  return factors;
}

std::vector<float> values_of(const files::GgufFile& file, const files::TensorInfo& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
  file.read(tensor, files::DType::F32, values.data());
  return values;
}

// The shortest numbers that are these in float32: 1.1, not 1.10000002.
std::vector<double> short_numbers(const std::vector<float>& values) {
  std::vector<double> numbers;
  for (const float value : values) numbers.push_back(std::stod(fmt::format("{}", value)));
  return numbers;
}

// Recovers the scaling from the factors, assuming Llama 3's own bounds.
json llama3_scaling(const files::GgufFile& file, const std::vector<float>& factors, double base,
                    int64_t original) {
  if (std::ranges::all_of(factors, [](float factor) { return factor == 1.0F; })) return nullptr;
  const RopeScaling rope{.type = RopeType::Llama3,
                         .base = base,
                         .factor = factors.empty() ? 1.0 : *std::ranges::max_element(factors),
                         .low_freq_factor = 1.0,
                         .high_freq_factor = 4.0,
                         .original_max_position = original};
  const auto near = [](float a, float b) { return std::abs(a - b) <= 1e-3F * std::abs(b); };
  if (!std::ranges::equal(factors, rope_factors(rope, 2 * std::ssize(factors)), near))
    throw UserError(
        "{}: tensor rope_freqs.weight scales rotary frequencies differently from Llama 3 "
        "(low_freq_factor 1, high_freq_factor 4, {} positions); use the model's Hugging Face "
        "directory instead",
        file.label(), original);
  return {{"rope_type", "llama3"},
          {"factor", rope.factor},
          {"low_freq_factor", rope.low_freq_factor},
          {"high_freq_factor", rope.high_freq_factor},
          {"original_max_position_embeddings", original}};
}

const files::TensorInfo& required(const files::GgufFile& file, const char* name) {
  const files::TensorInfo* tensor = file.find(name);
  if (tensor == nullptr) throw UserError("{}: tensor {} is missing", file.label(), name);
  return *tensor;
}

// Phi-3's; its factor of attention is said only where it is not what the lengths give.
json longrope_scaling(const files::GgufFile& file, const std::string& attention_key,
                      const std::vector<float>& long_factor, double positions, int64_t original) {
  const std::vector<double> long_numbers = short_numbers(long_factor);
  const std::vector<double> brief_numbers =
      short_numbers(values_of(file, required(file, "rope_factors_short.weight")));
  json scaling = {
      {"type", "longrope"}, {"long_factor", long_numbers}, {"short_factor", brief_numbers}};
  if (!file.has(attention_key)) return scaling;
  const RopeScaling usual{.type = RopeType::LongRope,
                          .factor = positions / static_cast<double>(original),
                          .original_max_position = original,
                          .short_factor = brief_numbers,
                          .long_factor = long_numbers};
  const double found = file.short_number(attention_key);
  const double given =
      kernels::cpu::rope_frequencies(usual, 2 * std::ssize(long_numbers), 1).attention_factor;
  if (std::abs(found - given) > 1e-4 * given) scaling["attention_factor"] = found;
  return scaling;
}

// A factor of attention is read of longrope alone.
void refuse_other_scaling(const files::GgufFile& file, const Family& family,
                          const std::string& prefix) {
  std::set<std::string> read = {"type", "factor", "original_context_length", "finetuned"};
  if (file.text(prefix + "type", "") == "yarn")
    for (const auto& [theirs, ours] : kYarnKeys)
      if (family.scaled_queries || !std::string_view(ours).starts_with("mscale"))
        read.insert(theirs);
  const bool is_longrope = file.find("rope_factors_long.weight") != nullptr;
  for (const auto& [key, value] : file.metadata()) {
    if (!key.starts_with(prefix) || read.contains(key.substr(prefix.size()))) continue;
    if (key == prefix + "attn_factor" && (is_longrope || file.number(key) == 1)) continue;
    throw UserError("{}: {} is not supported; use the model's Hugging Face directory instead",
                    file.label(), key);
  }
}

// With what the family has besides, such as gpt-oss's bounds, which are no whole numbers.
json yarn_scaling(const files::GgufFile& file, const Family& family, const std::string& prefix,
                  int64_t positions) {
  json scaling = default_config(family)["rope_scaling"];
  if (family.scaled_queries) {
    scaling["llama_4_scaling_beta"] = file.short_number(key_of(file, kTemperature));
    scaling["mscale_all_dim"] = 0;
  }
  scaling["rope_type"] = "yarn";
  scaling["factor"] = file.number(prefix + "factor");
  scaling["original_max_position_embeddings"] =
      file.integer(prefix + "original_context_length", positions);
  for (const auto& [theirs, ours] : kYarnKeys)
    if (file.has(prefix + theirs)) scaling[ours] = file.short_number(prefix + theirs);
  return scaling;
}

json rope_scaling(const files::GgufFile& file, const Family& family, const json& config) {
  const std::string prefix = key_of(file, "rope.scaling.");
  refuse_other_scaling(file, family, prefix);
  const auto key = [&](const char* name) { return prefix + name; };
  const int64_t positions = config["max_position_embeddings"];
  if (const files::TensorInfo* factors = file.find("rope_freqs.weight"))
    return llama3_scaling(file, values_of(file, *factors), config["rope_theta"],
                          file.integer(key("original_context_length"), kLlama3Positions));
  if (const files::TensorInfo* factors = file.find("rope_factors_long.weight"))
    return longrope_scaling(file, key("attn_factor"), values_of(file, *factors),
                            static_cast<double>(positions),
                            config["original_max_position_embeddings"].is_null()
                                ? positions
                                : config["original_max_position_embeddings"].get<int64_t>());
  const std::string type = file.text(key("type"), "none");
  if (type != "yarn" && family.scaled_queries)
    throw UserError("{}: {} without YaRN (rope.scaling.type \"{}\") is not supported", file.label(),
                    key_of(file, kTemperature), type);
  if (type == "none") return nullptr;
  if (type == "linear")
    return {{"rope_type", "linear"}, {"factor", file.number(key("factor"), 1.0)}};
  if (type == "yarn") return yarn_scaling(file, family, prefix, positions);
  throw UserError(
      "{}: rope scaling \"{}\" in a GGUF file is not supported; linear, yarn and Llama 3's are",
      file.label(), type);
}

void write_rope_scaling(const Config& c, files::GgufWriter& out) {
  const auto key = [&](const char* name) {
    return key_of(*c.family, std::string("rope.scaling.") + name);
  };
  const RopeScaling& rope = c.rope;
  const json of_family = default_config(*c.family)["rope_scaling"];
  RopeScaling usual{.type = RopeType::Yarn,
                    .factor = rope.factor,
                    .original_max_position = rope.original_max_position,
                    .truncate = of_family.is_null() || of_family.value("truncate", true)};
  if (c.family->scaled_queries) {  // llama.cpp reads these of Ministral 3 alone
    usual.beta_fast = rope.beta_fast;
    usual.beta_slow = rope.beta_slow;
    usual.mscale = 1;
    usual.mscale_all_dim = rope.mscale == 0 ? 0 : rope.mscale_all_dim;
    usual.query_beta = rope.query_beta;
  }
  const auto attention_factor = [&](const RopeScaling& of) {
    return kernels::cpu::rope_frequencies(of, c.rotary_dim, 1).attention_factor;
  };
  const bool usual_yarn = rope.type == RopeType::Yarn && rope.beta_fast == usual.beta_fast &&
                          rope.beta_slow == usual.beta_slow &&
                          std::abs(attention_factor(rope) - attention_factor(usual)) < 1e-6 &&
                          rope.truncate == usual.truncate;
  const auto original = static_cast<uint32_t>(rope.original_max_position);
  const auto set_unless = [&](const std::string& name, double value, double absent) {
    if (value != absent) out.set_f32(name, static_cast<float>(value));
  };
  if (rope.type == RopeType::None) return;
  if (rope.type == RopeType::Linear && rope.query_beta == 0) {
    out.set_text(key("type"), "linear");
    out.set_f32(key("factor"), static_cast<float>(rope.factor));
  } else if (usual_yarn) {
    out.set_text(key("type"), "yarn");
    out.set_f32(key("factor"), static_cast<float>(rope.factor));
    out.set_u32(key("original_context_length"), original);
    set_unless(key("yarn_beta_fast"), rope.beta_fast, RopeScaling().beta_fast);
    set_unless(key("yarn_beta_slow"), rope.beta_slow, RopeScaling().beta_slow);
    set_unless(key("yarn_log_multiplier"), usual.mscale_all_dim, 0);
    set_unless(key_of(*c.family, kTemperature), rope.query_beta, 0);
  } else if (rope.type == RopeType::Llama3 && rope.query_beta == 0) {
    out.set_u32(key("original_context_length"), original);
  } else if (rope.type == RopeType::LongRope && c.family->gguf == "phi3") {
    out.set_u32(key("original_context_length"), original);
    out.set_f32(key("attn_factor"), static_cast<float>(attention_factor(rope)));
  } else {
    throw UserError("snug cannot write this model's rotary scaling ({}) to GGUF",
                    c.json["rope_scaling"].dump());
  }
}

const Family& family_of(const files::GgufFile& file, std::set<std::string_view> known) {
  const std::string architecture = file.text("general.architecture");
  // llama.cpp has mistral3 for every text model of Mistral 3; Ministral 3's scale queries.
  if (architecture == "mistral3" && !file.has(key_of(file, kTemperature)))
    return *find_family("mistral");
  const Family* found = nullptr;
  for (const Family& family : families()) {
    if (!family.gguf.empty()) known.insert(family.gguf);
    if (family.gguf != architecture ||
        is_mixture(family) != (file.integer(key_of(family, "expert_count"), 0) > 0))
      continue;
    if (found == nullptr ||
        (family.gguf_window && file.has(key_of(family, "attention.sliding_window"))))
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
  const int64_t keys = file.integer(key_of(file, "attention.head_count_kv"), 1);
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

Config from_gguf(const files::GgufFile& file, std::set<std::string_view> others) {
  const Family& family = family_of(file, std::move(others));
  json config = default_config(family);
  for (const Key& key : kKeys) {
    const std::string name = key_of(file, key.gguf);
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
  if (!file.has(key_of(file, "attention.key_length"))) config["head_dim"] = nullptr;
  if (family.window_rope == WindowRope::Alone &&
      !file.has(key_of(file, "attention.sliding_window")))
    config["sliding_window"] = nullptr;
  if (const std::string name = key_of(file, "rope.dimension_count");
      config.contains("partial_rotary_factor") && file.has(name)) {
    const double heads = config["num_attention_heads"], width = config["hidden_size"];
    for (const char* key : {"partial_rotary_factor", "rotary_pct"})
      if (config.contains(key))
        config[key] = static_cast<double>(file.integer(name)) * heads / width;
  }
  if (const std::string name = key_of(file, "rope.scaling.original_context_length");
      !config["original_max_position_embeddings"].is_null() && file.has(name))
    config["original_max_position_embeddings"] = file.integer(name);
  if (config.contains("query_pre_attn_scalar"))
    config["query_pre_attn_scalar"] = usual_query_scalar(config);
  read_tensors(file, config);
  read_falcon(file, config);
  read_token_ids(file, config);
  config["rope_scaling"] = rope_scaling(file, family, config);
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
    const std::string name = key_of(*c.family, key.gguf);
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
    out.set_u32(key_of(*c.family, name), static_cast<uint32_t>(value));
  };
  if (c.json.contains("num_kv_heads")) count("attention.head_count_kv", c.num_key_value_heads);
  if (!usual_heads) count("attention.value_length", c.head_dim);
  count("rope.dimension_count", c.rotary_dim);
  count("vocab_size", c.vocab_size);
  write_rope_scaling(c, out);
}

std::map<std::string, std::vector<float>> gguf_constants(const Config& c) {
  const auto floats = [](const std::vector<double>& values) {
    return std::vector<float>(values.begin(), values.end());
  };
  if (c.rope.type == RopeType::LongRope)
    return {{"rope_factors_long.weight", floats(c.rope.long_factor)},
            {"rope_factors_short.weight", floats(c.rope.short_factor)}};
  if (c.rope.type != RopeType::Llama3) return {};
  return {{"rope_freqs.weight", rope_factors(c.rope, c.rotary_dim)}};
}

}  // namespace snug::models::decoder
