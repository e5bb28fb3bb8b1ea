// Converts a GGUF file's vocabulary to an equivalent tokenizer.json, so that one pipeline handles
// both and the result can be written to disk.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "text/tokenizer/tokenizer.h"

namespace snug::tokenizer {

// Throws UserError for lists whose lengths disagree, repeated tokens and vocabularies of other
// kinds.
nlohmann::json gguf_tokenizer_json(const GgufVocabulary& vocabulary);
nlohmann::json gguf_tokenizer_config(const GgufVocabulary& vocabulary);

}  // namespace snug::tokenizer
