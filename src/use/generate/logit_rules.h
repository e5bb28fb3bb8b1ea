// What changes logits before a token is chosen: repeated words cost, repeated groups of words and
// ends that come too early are forbidden. As transformers' generate() does it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace snug::use {

struct LogitRules {
  double repetition_penalty = 1.0;   // above 1: tokens that are there already become less likely
  int64_t no_repeat_ngram_size = 0;  // no group of so many tokens comes twice; 0: any may
  int64_t min_new_tokens = 0;        // no end before

  bool any() const {
    return repetition_penalty != 1.0 || no_repeat_ngram_size > 0 || min_new_tokens > 0;
  }
};

// Changes logits or log probabilities (S, V) float32 in place. seen[i]: the tokens of sequence i so
// far, `num_new` of them made here.
void apply_rules(const LogitRules& rules, std::span<const std::vector<int32_t>> seen,
                 int64_t num_new, std::span<const int32_t> end_ids, at::Tensor& logits);

}  // namespace snug::use
