// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer/gguf/gguf_pre.h"

#include <optional>

#include "base/log.h"

namespace snug::tokenizer {
namespace {

using nlohmann::json;

constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Pre-tokenizers of GGUF models with the architectures llama and qwen2. Of several names for the
// same, the first is written.
constexpr GgufPre kPres[] = {
    {"gpt-2", nullptr, false, false, false},
    {"default", nullptr, false, false, false},
    {"gpt2", nullptr, false, false, false},
    {"smollm", nullptr, true, false, false},
    {"refact", nullptr, true, false, false},
    {"llama-bpe", kLlama3Pattern, false, false, true},
    {"llama3", kLlama3Pattern, false, false, true},
    {"llama-v3", kLlama3Pattern, false, false, true},
    {"falcon3", kLlama3Pattern, false, false, true},
    {"smaug-bpe", kLlama3Pattern, false, false, true},
    {"qwen2", kQwen2Pattern, false, true, false},
    {"deepseek-r1-qwen", kQwen2Pattern, false, true, false},
    {"tekken", kTekkenPattern, false, false, true},
};

// A pre-tokenizer's steps as a list, even for one step or none.
json steps_of(const json& pre_tokenizer) {
  if (pre_tokenizer.is_null()) return json::array();
  if (pre_tokenizer.value("type", "") != "Sequence") return json::array({pre_tokenizer});
  return pre_tokenizer.value("pretokenizers", json::array());
}

// The steps that split, without ByteLevel's options that only affect offsets.
std::optional<json> cutting_steps(const json& pre_tokenizer) {
  json out = json::array();
  for (const json& step : steps_of(pre_tokenizer)) {
    const std::string type = step.value("type", "");
    if (type == "ByteLevel" && step.value("add_prefix_space", true)) return std::nullopt;
    if (type == "ByteLevel")
      out.push_back({type, step.value("use_regex", true)});
    else if (type == "Digits")
      out.push_back({type, step.value("individual_digits", false)});
    else if (type == "Split" && step.value("behavior", "") == "Isolated" &&
             !step.value("invert", false))
      out.push_back({type, step.value("pattern", json())});
    else
      return std::nullopt;
  }
  return out;
}

// Whether texts are brought to NFC; nothing for any other normalizer.
std::optional<bool> only_nfc(const json& normalizer) {
  if (normalizer.is_null()) return false;
  if (normalizer.value("type", "") == "NFC") return true;
  if (normalizer.value("type", "") != "Sequence") return std::nullopt;
  const json steps = normalizer.value("normalizers", json::array());
  if (steps.empty()) return false;
  return steps.size() == 1 ? only_nfc(steps[0]) : std::nullopt;
}

}  // namespace

const GgufPre& gguf_pre(const std::string& name) {
  for (const GgufPre& pre : kPres) {
    if (pre.name == name) return pre;
  }
  if (!name.empty()) {
    warn(
        "GGUF: the pre-tokenizer '{}' is unknown; words are split as in GPT-2, and ids may differ "
        "from those the model was trained on",
        name);
  }
  return kPres[0];
}

const GgufPre* find_gguf_pre(const json& tokenizer_json) {
  const std::optional<json> steps = cutting_steps(tokenizer_json.value("pre_tokenizer", json()));
  const std::optional<bool> nfc = only_nfc(tokenizer_json.value("normalizer", json()));
  const bool ignore_merges = tokenizer_json.at("model").value("ignore_merges", false);
  if (!steps || !nfc) return nullptr;
  for (const GgufPre& pre : kPres) {
    if (pre.nfc == *nfc && pre.ignore_merges == ignore_merges &&
        cutting_steps(gguf_pre_tokenizer_json(pre)) == steps)
      return &pre;
  }
  return nullptr;
}

json byte_level_json(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

json gguf_pre_tokenizer_json(const GgufPre& pre) {
  json steps = json::array();
  if (pre.single_digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (pre.pattern) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", pre.pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back(byte_level_json(pre.pattern == nullptr));
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

}  // namespace snug::tokenizer
