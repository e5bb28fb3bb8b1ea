// The inverse of gguf_vocabulary.h: converts a tokenizer.json to GGUF's vocabulary.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "text/tokenizer/engine.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::tokenizer {

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

}  // namespace snug::tokenizer
