// Scalings of rotary embeddings in GGUF metadata, read and written.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.h"
#include "models/decoder/config/gguf.h"

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

constexpr int64_t kLlama3Positions = 8192;  // context of the pretraining of Llama 3.1 to 3.3

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
  numbers.reserve(values.size());
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
    scaling["llama_4_scaling_beta"] = file.short_number(gguf_key(file, kGgufTemperature));
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

}  // namespace

json gguf_rope_scaling(const files::GgufFile& file, const Family& family, const json& config) {
  const std::string prefix = gguf_key(file, "rope.scaling.");
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
                    gguf_key(file, kGgufTemperature), type);
  if (type == "none")  // a family's own would be read where nothing is said
    return default_config(family)["rope_scaling"].is_null() ? json()
                                                            : json{{"rope_type", "default"}};
  if (type == "linear")
    return {{"rope_type", "linear"}, {"factor", file.number(key("factor"), 1.0)}};
  if (type == "yarn") return yarn_scaling(file, family, prefix, positions);
  throw UserError(
      "{}: rope scaling \"{}\" in a GGUF file is not supported; linear, yarn and Llama 3's are",
      file.label(), type);
}

void write_gguf_rope_scaling(const Config& c, files::GgufWriter& out) {
  const auto key = [&](const char* name) {
    return gguf_key(*c.family, std::string("rope.scaling.") + name);
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
    return kernels::cpu::rope_frequencies(of, c.rotated.dim, 1).attention_factor;
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
    set_unless(gguf_key(*c.family, kGgufTemperature), rope.query_beta, 0);
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

std::map<std::string, std::vector<float>> gguf_constants(const Config& c) {
  const auto floats = [](const std::vector<double>& values) {
    return std::vector<float>(values.begin(), values.end());
  };
  if (c.rope.type == RopeType::LongRope)
    return {{"rope_factors_long.weight", floats(c.rope.long_factor)},
            {"rope_factors_short.weight", floats(c.rope.short_factor)}};
  if (c.rope.type != RopeType::Llama3) return {};
  return {{"rope_freqs.weight", rope_factors(c.rope, c.rotated.dim)}};
}

}  // namespace snug::models::decoder
