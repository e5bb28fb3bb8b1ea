// SPDX-License-Identifier: Apache-2.0

#include <fmt/ranges.h>

#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "base/log.h"
#include "text/tokenizer/gguf/gguf.h"

namespace snug::tokenizer {
namespace {

using nlohmann::json;

// Texts that different pre-tokenizers split differently.
constexpr const char* kProbes[] = {
    "Hello, world! It's 3.14159 or 1,234,567; we'LL see—don't\n\n  they?   \t end  ",
    "  two spaces, CamelCase snake_case #1 (a+b)*c == {x: [0x7F]} // http://a.b/c?d=e&f",
    "naïve cafe\u0301 Ünïcödé Ελληνικά русский язык ไทย हिन्दी العربية 日本語の文章 한국어 "
    "🎉👩‍💻 "
    "½²",
    "x",
    " ",
    "\n\n\n\r\nline\r\n\tindented 12345678901234567890\u00a0\u3000!",
};

// "<0x0A>"
bool is_byte_token(const std::string& token) {
  return token.size() == 6 && token.starts_with("<0x") && token.back() == '>';
}

std::pair<std::string, std::string> merge_of(const json& entry, const std::string& where) {
  if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string())
    return {entry[0], entry[1]};
  if (entry.is_string()) {
    const std::string text = entry;
    const size_t space = text.find(' ');
    if (space != text.npos) return {text.substr(0, space), text.substr(space + 1)};
  }
  throw UserError("{}: the merge {} is not a pair of tokens", where, entry.dump());
}

// Converts the order of merges to sentencepiece's scores: the later a merge first makes a piece,
// the lower its score. Pieces that no merge makes come last.
std::vector<float> scores_of(const json& merges, const std::string& where,
                             const GgufVocabulary& v) {
  std::unordered_map<std::string, size_t> place;
  for (const json& entry : merges) {
    const auto [left, right] = merge_of(entry, where);
    place.try_emplace(left + right, place.size());
  }
  std::vector<float> scores(v.tokens.size(), 0.0F);
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    if (v.token_types[id] != kNormal) continue;
    const auto found = place.find(v.tokens[id]);
    scores[id] = -static_cast<float>(found == place.end() ? place.size() : found->second);
  }
  return scores;
}

// Whether a text gets a space in front, as sentencepiece does.
bool adds_prefix(const json& normalizer, const json& pre_tokenizer) {
  const std::string type = normalizer.is_object() ? normalizer.value("type", "") : "";
  if (type == "Prepend") return true;
  if (type == "Sequence") {
    for (const json& step : normalizer.value("normalizers", json::array()))
      if (step.value("type", "") == "Prepend") return true;
  }
  if (!pre_tokenizer.is_object() || pre_tokenizer.value("type", "") != "Metaspace") return false;
  return pre_tokenizer.value("prepend_scheme", "always") != "never" &&
         pre_tokenizer.value("add_prefix_space", true);
}

}  // namespace

void set_gguf_tokens(const Engine& engine, int64_t num_tokens, GgufVocabulary& out) {
  if (engine.end_id() > num_tokens)
    warn(
        "the tokenizer knows {} tokens, the model {}; those from id {} on are left out of the GGUF "
        "file",
        engine.end_id(), num_tokens, num_tokens);
  for (int64_t i = 0; i < num_tokens; ++i) {
    const auto id = static_cast<int32_t>(i);
    const AddedToken* added = engine.added_token(id);
    std::string token = added != nullptr ? added->content : engine.token(id);
    int32_t type = kNormal;
    if (added != nullptr)
      type = added->special ? kControl : kUserDefined;
    else if (token.empty())
      type = kUnused;
    else if (is_byte_token(token))
      type = kByte;
    if (type == kUnused) token = fmt::format("[PAD{}]", id);
    out.tokens.push_back(std::move(token));
    out.token_types.push_back(type);
  }
}

void set_gguf_rules(const json& tokenizer_json, const std::string& where, GgufVocabulary& out) {
  const json& model = tokenizer_json.at("model");
  const std::string type = model.value("type", model.contains("merges") ? "BPE" : "unknown");
  if (type != "BPE")
    throw UserError("{}: snug cannot write a vocabulary of type {} to GGUF, only BPE", where, type);
  const json merges = model.value("merges", json::array());
  if (model.value("byte_fallback", false)) {
    out.model = "llama";
    out.pre = "default";
    out.scores = scores_of(merges, where, out);
    out.add_space_prefix = adds_prefix(tokenizer_json.value("normalizer", json()),
                                       tokenizer_json.value("pre_tokenizer", json()));
    return;
  }
  const GgufPre* pre = find_gguf_pre(tokenizer_json);
  if (pre == nullptr)
    throw UserError(
        "{}: GGUF does not support how this tokenizer splits words (normalizer {}, pre_tokenizer "
        "{}); convert to hf instead",
        where, tokenizer_json.value("normalizer", json()).dump().substr(0, 200),
        tokenizer_json.value("pre_tokenizer", json()).dump().substr(0, 400));
  out.model = "gpt2";
  out.pre = pre->name;
  out.add_space_prefix = false;
  for (const json& entry : merges) {
    const auto [left, right] = merge_of(entry, where);
    out.merges.push_back(left + " " + right);
  }
}

void check_gguf_ids(const Tokenizer& tokenizer, const GgufVocabulary& vocabulary,
                    const std::string& where) {
  const auto written = Tokenizer::from_gguf(vocabulary);
  for (const char* probe : kProbes) {
    const std::vector<int32_t> ids = tokenizer.encode(probe, true);
    const std::vector<int32_t> found = written->encode(probe, true);
    if (ids == found) continue;
    // Readers of GGUF files put a space in front of every text. Llama's tokenizers, as they are
    // saved today, put none where there is one.
    if (vocabulary.model == "llama" && probe[0] == ' ') {
      warn(
          "{}: from the GGUF file, texts that begin with a space get one token more in front than "
          "from the tokenizer's own files",
          where);
      continue;
    }
    throw UserError(
        "{}: GGUF cannot express this tokenizer: \"{}\" is [{}], and from a GGUF file it would "
        "be [{}]; convert to hf instead",
        where, probe, fmt::join(ids, ", "), fmt::join(found, ", "));
  }
}

namespace {

using nlohmann::json;

constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr const char* kGpt4oPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Pre-tokenizers of GGUF models. Of several names for the same, the first is written; of several
// rows of a name, the first is read.
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
    {"stablelm2", kQwen2Pattern, false, true, false},
    {"olmo", nullptr, false, true, false},  // GPT-NeoX's
    {"falcon", nullptr, false, false, false, /*punctuation_apart=*/true},
    {"tekken", kTekkenPattern, false, false, true},
    {"gpt-4o", kGpt4oPattern, false, false, true},
    {"gpt-4o", kGpt4oPattern, false, false, false},
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
    else if (type == "Punctuation" && step.value("behavior", "") == "Contiguous")
      out.push_back({type});
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
  if (pre.punctuation_apart) steps.push_back({{"type", "Punctuation"}, {"behavior", "Contiguous"}});
  if (pre.single_digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (pre.pattern) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", pre.pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back(byte_level_json(pre.pattern == nullptr));
  if (pre.punctuation_apart) {
    steps.push_back({{"type", "Digits"}, {"individual_digits", false}});
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", "[0-9][0-9][0-9]"}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

}  // namespace snug::tokenizer
