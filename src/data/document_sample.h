// A row as a document that is scored whole: no token of it is learnt.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>

#include "data/sample.h"
#include "data/sample_store.h"

namespace snug::data {

// Texts are as transformers' tokenizers encode them, with a beginning but no end of sequence, and
// chats as the template writes them: what a classifier is asked later. Without a template turns
// stand below each other. A document that is too long loses its end, unless it is left out later.
Sample make_document(const Row& row, const PromptStyle& style, const TextEncoder& encoder,
                     const SampleOptions& options);

// How many tokens it has up to the one that is scored: the last that is not `pad_token`, as
// transformers finds it; -1: there is none.
int64_t scored_tokens(std::span<const int32_t> stored, int32_t pad_token);

// The columns of objectives that score documents: "tokens", scored_tokens() of each document, and
// the number of its row, by its number in the data set.
void add_score_columns(SampleStore& samples, std::span<const int64_t> row_numbers,
                       const std::unordered_map<int64_t, double>& values, int32_t pad_token);

}  // namespace snug::data
