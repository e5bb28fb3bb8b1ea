// Reads and writes the config as GGUF metadata. There Qwen2 has its own architecture; Mistral is a
// "llama".
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "models/llama/config.h"

namespace snug::models::llama {
namespace {

using kernels::cpu::RopeScaling;
using kernels::cpu::RopeType;

constexpr int64_t kLlama3Positions = 8192;  // context of the pretraining of Llama 3.1 to 3.3

// GGUF stores Llama 3's scaling as factors: the divisor of each frequency.
std::vector<float> rope_factors(const RopeScaling& scaling, int64_t head_dim) {
  const RopeScaling plain{.base = scaling.base};
  const std::vector<float> before = kernels::cpu::rope_frequencies(plain, head_dim, 1).inverse;
  std::vector<float> factors = kernels::cpu::rope_frequencies(scaling, head_dim, 1).inverse;
  for (size_t i = 0; i < factors.size(); ++i) factors[i] = before[i] / factors[i];
  return factors;
}

// Recovers the scaling from the factors, assuming Llama 3's own bounds.
void read_rope_factors(const files::GgufFile& file, const files::TensorInfo& tensor,
                       int64_t original, Config& config) {
  std::vector<float> factors(static_cast<size_t>(tensor.num_elements()));
  file.read(tensor, files::DType::F32, factors.data());
  if (std::ranges::all_of(factors, [](float factor) { return factor == 1.0F; })) return;
  RopeScaling& rope = config.rope;
  rope.type = RopeType::Llama3;
  rope.factor = factors.empty() ? 1.0 : *std::ranges::max_element(factors);
  rope.low_freq_factor = 1.0;
  rope.high_freq_factor = 4.0;
  rope.original_max_position = original;
  const auto near = [](float a, float b) { return std::abs(a - b) <= 1e-3F * std::abs(b); };
  if (std::ssize(factors) != config.head_dim / 2 ||
      !std::ranges::equal(factors, rope_factors(rope, config.head_dim), near))
    throw UserError(
        "{}: tensor rope_freqs.weight scales rotary frequencies differently from Llama 3 "
        "(low_freq_factor 1, high_freq_factor 4, {} positions); use the model's Hugging Face "
        "directory instead",
        file.label(), original);
  config.rope_scaling_json = {{"rope_type", "llama3"},
                              {"factor", rope.factor},
                              {"low_freq_factor", rope.low_freq_factor},
                              {"high_freq_factor", rope.high_freq_factor},
                              {"original_max_position_embeddings", original}};
}

void read_rope_scaling(const files::GgufFile& file, const std::string& architecture,
                       Config& config) {
  const auto key = [&](const char* name) { return architecture + ".rope.scaling." + name; };
  const std::string type = file.text(key("type"), "none");
  if (type == "linear") {
    config.rope.type = RopeType::Linear;
    config.rope.factor = file.number(key("factor"), 1.0);
    config.rope_scaling_json = {{"rope_type", "linear"}, {"factor", config.rope.factor}};
  } else if (type == "yarn") {
    config.rope.type = RopeType::Yarn;
    config.rope.factor = file.number(key("factor"));
    config.rope.original_max_position =
        file.integer(key("original_context_length"), config.max_position_embeddings);
    config.rope_scaling_json = {
        {"rope_type", "yarn"},
        {"factor", config.rope.factor},
        {"original_max_position_embeddings", config.rope.original_max_position}};
  } else if (type != "none") {
    throw UserError(
        "{}: rope scaling \"{}\" in a GGUF file is not supported; linear, yarn and Llama 3's are",
        file.label(), type);
  }
  if (const files::TensorInfo* tensor = file.find("rope_freqs.weight"))
    read_rope_factors(file, *tensor, file.integer(key("original_context_length"), kLlama3Positions),
                      config);
}

void write_rope_scaling(const Config& c, const std::string& architecture, files::GgufWriter& out) {
  const auto key = [&](const char* name) { return architecture + ".rope.scaling." + name; };
  const RopeScaling& rope = c.rope;
  const RopeScaling usual;
  const bool usual_yarn = rope.beta_fast == usual.beta_fast && rope.beta_slow == usual.beta_slow &&
                          rope.mscale == 0 && rope.mscale_all_dim == 0 &&
                          rope.attention_factor == 0 && rope.truncate;
  const auto original = static_cast<uint32_t>(rope.original_max_position);
  if (rope.type == RopeType::None) return;
  if (rope.type == RopeType::Linear) {
    out.set_text(key("type"), "linear");
    out.set_f32(key("factor"), static_cast<float>(rope.factor));
  } else if (rope.type == RopeType::Yarn && usual_yarn) {
    out.set_text(key("type"), "yarn");
    out.set_f32(key("factor"), static_cast<float>(rope.factor));
    out.set_u32(key("original_context_length"), original);
  } else if (rope.type == RopeType::Llama3) {
    out.set_u32(key("original_context_length"), original);
  } else {
    throw UserError("snug cannot write this model's rotary scaling ({}) to GGUF",
                    c.rope_scaling_json.dump());
  }
}

}  // namespace

Config from_gguf(const files::GgufFile& file) {
  const std::string where = file.describe();
  const std::string architecture = file.text("general.architecture");
  if (architecture != "llama" && architecture != "qwen2")
    throw UserError("{}: architecture \"{}\" is not supported; supported are llama and qwen2",
                    where, architecture);
  const auto key = [&](const char* name) { return architecture + "." + name; };
  Config config;
  config.model_type = architecture;
  config.hidden_size = file.integer(key("embedding_length"));
  config.intermediate_size = file.integer(key("feed_forward_length"));
  config.num_hidden_layers = file.integer(key("block_count"));
  config.num_attention_heads = file.integer(key("attention.head_count"));
  config.num_key_value_heads =
      file.integer(key("attention.head_count_kv"), config.num_attention_heads);
  if (config.num_attention_heads <= 0) throw UserError("{}: no attention heads", where);
  config.head_dim =
      file.integer(key("attention.key_length"), config.hidden_size / config.num_attention_heads);
  config.max_position_embeddings = file.integer(key("context_length"), 2048);
  config.rms_norm_eps = file.number(key("attention.layer_norm_rms_epsilon"), 1e-6);
  // Stored as float32, where 1e-5 becomes 9.99999974e-06; round it back.
  config.rms_norm_eps = std::stod(fmt::format("{:.6g}", config.rms_norm_eps));
  config.rope.base = file.number(key("rope.freq_base"), 10000.0);
  read_rope_scaling(file, architecture, config);
  const files::TensorInfo* embedding = file.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2)
    throw UserError("{}: tensor token_embd.weight is missing", where);
  config.vocab_size = embedding->shape[0];
  config.tie_word_embeddings = file.find("output.weight") == nullptr;
  config.qkv_bias = architecture == "qwen2" || file.find("blk.0.attn_q.bias") != nullptr;
  config.output_bias = file.find("blk.0.attn_output.bias") != nullptr;
  config.mlp_bias = file.find("blk.0.ffn_gate.bias") != nullptr;
  if (file.has("tokenizer.ggml.bos_token_id"))
    config.bos_token_ids = {file.integer("tokenizer.ggml.bos_token_id")};
  if (file.has("tokenizer.ggml.eos_token_id"))
    config.eos_token_ids = {file.integer("tokenizer.ggml.eos_token_id")};
  if (file.has("tokenizer.ggml.eot_token_id"))
    config.eos_token_ids.push_back(file.integer("tokenizer.ggml.eot_token_id"));
  config.pad_token_id = file.integer("tokenizer.ggml.padding_token_id", -1);
  check(config, where);
  return config;
}

void to_gguf(const Config& c, files::GgufWriter& out) {
  const std::string architecture = c.model_type == "qwen2" ? "qwen2" : "llama";
  const auto count = [&](const char* name, int64_t value) {
    out.set_u32(architecture + "." + name, static_cast<uint32_t>(value));
  };
  const auto number = [&](const char* name, double value) {
    out.set_f32(architecture + "." + name, static_cast<float>(value));
  };
  if (c.sliding_window > 0)
    warn(
        "GGUF's {} architecture has no sliding window: beyond {} tokens a program that reads the "
        "file attends to more tokens than the model did in training",
        architecture, c.sliding_window);
  out.set_text("general.architecture", architecture);
  count("block_count", c.num_hidden_layers);
  count("context_length", c.max_position_embeddings);
  count("embedding_length", c.hidden_size);
  count("feed_forward_length", c.intermediate_size);
  count("attention.head_count", c.num_attention_heads);
  count("attention.head_count_kv", c.num_key_value_heads);
  if (c.head_dim * c.num_attention_heads != c.hidden_size) {
    count("attention.key_length", c.head_dim);
    count("attention.value_length", c.head_dim);
  }
  number("attention.layer_norm_rms_epsilon", c.rms_norm_eps);
  count("rope.dimension_count", c.head_dim);
  number("rope.freq_base", c.rope.base);
  count("vocab_size", c.vocab_size);
  write_rope_scaling(c, architecture, out);
}

std::vector<float> gguf_rope_factors(const Config& c) {
  if (c.rope.type != RopeType::Llama3) return {};
  return rope_factors(c.rope, c.head_dim);
}

}  // namespace snug::models::llama
