// tokenizer.ggml.pre: GGUF's names of pre-tokenizers for byte-level vocabularies, and each one's
// equivalent in a tokenizer.json.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace snug::tokenizer {

// tokenizer.ggml.token_type
enum GgufTokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// Without a pattern: GPT-2's, which is part of ByteLevel.
struct GgufPre {
  std::string_view name;
  const char* pattern;
  bool single_digits, nfc, ignore_merges;
};

// Warns and returns GPT-2's for an unknown name.
const GgufPre& gguf_pre(const std::string& name);

// The pre-tokenizer equivalent to this tokenizer.json's; nullptr if GGUF has none.
const GgufPre* find_gguf_pre(const nlohmann::json& tokenizer_json);

nlohmann::json gguf_pre_tokenizer_json(const GgufPre& pre);
nlohmann::json byte_level_json(bool use_regex);

}  // namespace snug::tokenizer
