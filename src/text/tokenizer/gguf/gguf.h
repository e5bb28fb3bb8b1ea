// Converts a GGUF file's vocabulary to an equivalent tokenizer.json, so that one pipeline handles
// both and the result can be written to disk; and a tokenizer.json to GGUF's vocabulary.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "text/tokenizer/engine.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::tokenizer {

// Throws UserError for lists whose lengths disagree, repeated tokens and vocabularies of other
// kinds.
nlohmann::json gguf_tokenizer_json(const GgufVocabulary& vocabulary);
nlohmann::json gguf_tokenizer_config(const GgufVocabulary& vocabulary);

// model, tokens and token types of exactly `num_tokens` ids: ids without a token get a placeholder,
// larger ids are omitted with a warning (a GGUF file has one token per row of the embedding).
void set_gguf_tokens(const Engine& engine, int64_t num_tokens, GgufVocabulary& out);

// Sets model, pre, merges or scores. The tokens must be set. Throws UserError, beginning with
// `where`, for a tokenizer that GGUF cannot express.
void set_gguf_rules(const nlohmann::json& tokenizer_json, const std::string& where,
                    GgufVocabulary& out);

// Throws UserError if a tokenizer made from `vocabulary` gives other ids than `tokenizer`, since a
// GGUF file silently drops what it cannot express.
void check_gguf_ids(const Tokenizer& tokenizer, const GgufVocabulary& vocabulary,
                    const std::string& where);

// tokenizer.ggml.token_type
enum GgufTokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// tokenizer.ggml.pre: GGUF's name of a pre-tokenizer for byte-level vocabularies, and its
// equivalent in a tokenizer.json. Without a pattern: GPT-2's, which is part of ByteLevel.
struct GgufPre {
  std::string_view name;
  const char* pattern;
  bool single_digits, nfc, ignore_merges;
  bool punctuation_apart = false;  // Falcon's: so are digits, in threes
};

// Warns and returns GPT-2's for an unknown name.
const GgufPre& gguf_pre(const std::string& name);

// The pre-tokenizer equivalent to this tokenizer.json's; nullptr if GGUF has none.
const GgufPre* find_gguf_pre(const nlohmann::json& tokenizer_json);

nlohmann::json gguf_pre_tokenizer_json(const GgufPre& pre);
nlohmann::json byte_level_json(bool use_regex);

}  // namespace snug::tokenizer
