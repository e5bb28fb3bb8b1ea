// The way back from gguf_vocabulary.h: a tokenizer.json in the terms of a GGUF file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "tokenizer/engine.h"
#include "tokenizer/tokenizer.h"

namespace snug::tokenizer {

// model, tokens and token types of exactly `num_tokens` ids: those without a token get a
// placeholder, those beyond are left out with a warning (a GGUF file has one token for each row of
// the embedding).
void set_gguf_tokens(const Engine& engine, int64_t num_tokens, GgufVocabulary& out);

// model, pre, merges or scores. The tokens must be there. Throws UserError, beginning with `where`,
// for a tokenizer that GGUF has no form for.
void set_gguf_rules(const nlohmann::json& tokenizer_json, const std::string& where,
                    GgufVocabulary& out);

// Throws UserError where a tokenizer made of `vocabulary` would give other ids than `tokenizer`:
// what a GGUF file cannot say is lost without a trace otherwise.
void check_gguf_ids(const Tokenizer& tokenizer, const GgufVocabulary& vocabulary,
                    const std::string& where);

}  // namespace snug::tokenizer
