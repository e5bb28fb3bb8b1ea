// Answers to other prompts than their own, by which KTO sees how far a model has moved from where
// it began (core/nn/objectives/kto.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "data/sample_store.h"

namespace snug::data {

// How far back the answer of each row is taken from, around the end: 1, as in TRL, or what gives
// the fewest rows an answer to their own prompt, where several answers to one stand together. All
// rows go back as far, so that each answer is taken once. 0: all rows have the same prompt.
int64_t mismatch(const SampleStore& samples);

// One document for each sample: its prompt with the answer of the row `back` before it, cut to
// `limit` tokens as samples are (0: not at all). The answer begins with the first token that is
// learnt.
SampleStore mismatched(const SampleStore& samples, int64_t back, int64_t limit);

}  // namespace snug::data
