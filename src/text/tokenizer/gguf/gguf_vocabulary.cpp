// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer/gguf/gguf.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "text/tokenizer/unicode.h"
#include "text/tokenizer/vocabulary.h"

namespace snug::tokenizer {
namespace {

using nlohmann::json;

constexpr std::string_view kWhere = "GGUF, tokenizer.ggml.tokens";

constexpr size_t kMaxPieceBytes = 4096;  // trying every split is quadratic in this

void check(const GgufVocabulary& v) {
  if (v.tokens.empty())
    throw UserError("{}: the list is empty; the file has no vocabulary", kWhere);
  const auto same_length = [&](const char* key, size_t length) {
    if (length != 0 && length != v.tokens.size()) {
      throw UserError("GGUF: {} entries in tokenizer.ggml.{}, but {} tokens; the file is damaged",
                      length, key, v.tokens.size());
    }
  };
  same_length("scores", v.scores.size());
  for (size_t i = 0; i < v.scores.size(); ++i) {
    if (!std::isfinite(v.scores[i])) {
      throw UserError("GGUF: tokenizer.ggml.scores[{}] is {}; the file is damaged", i, v.scores[i]);
    }
  }
  same_length("token_type", v.token_types.size());
  const auto check_text = [](const char* key, const std::vector<std::string>& texts) {
    for (size_t i = 0; i < texts.size(); ++i) {
      if (find_invalid_utf8(texts[i]) != std::string::npos) {
        throw UserError("GGUF: tokenizer.ggml.{}[{}] is not UTF-8; the file is damaged", key, i);
      }
    }
  };
  check_text("tokens", v.tokens);
  check_text("merges", v.merges);
  const auto in_range = [&](const char* key, int32_t id) {
    if (id >= static_cast<int64_t>(v.tokens.size())) {
      throw UserError("GGUF: tokenizer.ggml.{}_token_id is {}, but there are {} tokens", key, id,
                      v.tokens.size());
    }
  };
  in_range("bos", v.special.bos);
  in_range("eos", v.special.eos);
  in_range("padding", v.special.pad);
  in_range("unknown", v.special.unk);
}

int32_t type_of(const GgufVocabulary& v, size_t id) {
  return id < v.token_types.size() ? v.token_types[id] : kNormal;
}

json added_tokens(const GgufVocabulary& v) {
  const auto& s = v.special;
  // sentencepiece looks for user-defined pieces in a text whose spaces it has escaped, so that two
  // spaces are the same as two of its signs. Behind a prefix they would have to start with it.
  const bool escaped = v.model == "llama" && !v.add_space_prefix;
  json out = json::array();
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    const int32_t type = type_of(v, id);
    const auto number = static_cast<int32_t>(id);
    const bool named = number == s.bos || number == s.eos || number == s.pad || number == s.unk;
    const bool special = type == kControl || type == kUnknown || named;
    if ((!special && type != kUserDefined) || v.tokens[id].empty()) continue;
    out.push_back({{"id", id},
                   {"content", v.tokens[id]},
                   {"single_word", false},
                   {"lstrip", false},
                   {"rstrip", false},
                   {"normalized", escaped && !special},
                   {"special", special}});
  }
  return out;
}

json frame_json(const GgufVocabulary& v) {
  json single = json::array(), specials = json::object();
  const auto add = [&](int32_t id) {
    const std::string& token = v.tokens[id];
    single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
    specials[token] = {{"id", token}, {"ids", {id}}, {"tokens", {token}}};
  };
  if (v.special.add_bos && v.special.bos >= 0) add(v.special.bos);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (v.special.add_eos && v.special.eos >= 0) add(v.special.eos);
  json pair = single;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", specials}};
}

// sentencepiece merges the neighbours that give the piece with the best score. So every split of a
// piece into two others becomes a merge, ranked by the piece's score; among equal ones the longer
// left half comes first.
json merges_by_score(const GgufVocabulary& v, const Vocabulary& vocabulary) {
  struct Merge {
    float score;
    size_t left_length, right_length;  // in characters
    int32_t id;
    size_t cut;
  };
  std::vector<Merge> merges;
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    if (type_of(v, id) != kNormal) continue;
    const std::string_view token = v.tokens[id];
    if (token.size() > kMaxPieceBytes) {
      throw UserError("{}[{}]: a piece has {} bytes; at most {} are allowed", kWhere, id,
                      token.size(), kMaxPieceBytes);
    }
    std::vector<size_t> cuts;
    for (size_t i = 0; i < token.size(); i += utf8_length(token[i])) cuts.push_back(i);
    for (size_t k = 1; k < cuts.size(); ++k) {
      if (vocabulary.find(token.substr(0, cuts[k])) < 0) continue;
      if (vocabulary.find(token.substr(cuts[k])) < 0) continue;
      merges.push_back({v.scores[id], k, cuts.size() - k, static_cast<int32_t>(id), cuts[k]});
    }
  }
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tie(a.score, a.left_length, a.right_length) >
           std::tie(b.score, b.left_length, b.right_length);
  });
  json out = json::array();
  for (const Merge& merge : merges) {
    const std::string& token = v.tokens[merge.id];
    out.push_back({token.substr(0, merge.cut), token.substr(merge.cut)});
  }
  return out;
}

json model_json(const GgufVocabulary& v, bool by_score, bool ignore_merges) {
  Vocabulary vocabulary;
  json ids = json::object();
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    vocabulary.add(v.tokens[id], static_cast<int32_t>(id), kWhere);
    ids[v.tokens[id]] = id;
  }
  json merges;
  if (by_score) {
    if (v.scores.empty()) throw UserError("GGUF: tokenizer.ggml.scores is missing");
    merges = merges_by_score(v, vocabulary);
  } else {
    merges = v.merges;
  }
  json unk;
  if (by_score && v.special.unk >= 0) unk = v.tokens[v.special.unk];
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", unk},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", by_score},
          {"byte_fallback", by_score},
          {"ignore_merges", ignore_merges},
          {"vocab", std::move(ids)},
          {"merges", std::move(merges)}};
}

void add_byte_level_parts(const GgufVocabulary& v, json& out) {
  const GgufPre& kind = gguf_pre(v.pre);
  if (kind.nfc) out["normalizer"] = {{"type", "NFC"}};
  out["pre_tokenizer"] = gguf_pre_tokenizer_json(kind);
  out["decoder"] = byte_level_json(true);
  out["model"] = model_json(v, false, kind.ignore_merges);
}

void add_sentencepiece_parts(const GgufVocabulary& v, json& out) {
  const json replace_space = {
      {"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}};
  json normalizers = json::array(), decoders = json::array();
  if (v.add_space_prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", "▁"}});
  normalizers.push_back(replace_space);
  decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}});
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (v.add_space_prefix) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  out["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers}};
  out["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
  out["model"] = model_json(v, true, false);
}

}  // namespace

json gguf_tokenizer_json(const GgufVocabulary& v) {
  check(v);
  json out = {{"version", "1.0"},      {"truncation", nullptr},    {"padding", nullptr},
              {"normalizer", nullptr}, {"pre_tokenizer", nullptr}, {"decoder", nullptr}};
  out["added_tokens"] = added_tokens(v);
  out["post_processor"] = frame_json(v);
  if (v.model == "gpt2") {
    add_byte_level_parts(v, out);
  } else if (v.model == "llama") {
    add_sentencepiece_parts(v, out);
  } else {
    throw UserError("GGUF: tokenizer.ggml.model is '{}'; 'gpt2' and 'llama' are supported",
                    v.model);
  }
  return out;
}

json gguf_tokenizer_config(const GgufVocabulary& v) {
  json out = {{"tokenizer_class", "PreTrainedTokenizerFast"},
              {"clean_up_tokenization_spaces", false},
              {"add_bos_token", v.special.add_bos && v.special.bos >= 0},
              {"add_eos_token", v.special.add_eos && v.special.eos >= 0}};
  const auto add = [&](const char* key, int32_t id) {
    if (id >= 0) out[key] = v.tokens[id];
  };
  add("bos_token", v.special.bos);
  add("eos_token", v.special.eos);
  add("pad_token", v.special.pad);
  add("unk_token", v.special.unk);
  if (!v.chat_template.empty()) out["chat_template"] = v.chat_template;
  return out;
}

}  // namespace snug::tokenizer
