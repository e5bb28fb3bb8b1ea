// tokenizer.ggml.pre: the names by which GGUF files say how a byte-level vocabulary cuts words, and
// what each means as parts of a tokenizer.json.
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

// No pattern: GPT-2's own, inside ByteLevel.
struct GgufPre {
  std::string_view name;
  const char* pattern;
  bool single_digits, nfc, ignore_merges;
};

// Warns and takes GPT-2's for a name that is not known.
const GgufPre& gguf_pre(const std::string& name);

// The one that cuts as this tokenizer.json does; nullptr where GGUF has no name for it.
const GgufPre* find_gguf_pre(const nlohmann::json& tokenizer_json);

nlohmann::json gguf_pre_tokenizer_json(const GgufPre& pre);
nlohmann::json byte_level_json(bool use_regex);

}  // namespace snug::tokenizer
