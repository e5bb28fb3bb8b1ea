// Chooses the next token from logits by temperature, top-k and top-p (Holtzman et al. 2020), after
// the rules of transformers' generate() about repetition and early ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/random.h"

namespace snug::use {

struct SamplingOptions {
  double temperature = 0.8;  // 0: the likeliest token
  std::optional<int64_t> top_k;
  double top_p = 1.0;
  uint64_t seed = 1234;
};

// Throws UserError if the greatest of a sequence's logits, which is NaN if any is, is no number.
void check_logit(float logit);

class TokenSampler {
 public:
  explicit TokenSampler(const SamplingOptions& options)
      : options_(options), random_(options.seed) {}
  int32_t next(std::span<const float> logits);

 private:
  SamplingOptions options_;
  data::SplitMix random_;
};

struct LogitRules {
  double repetition_penalty = 1.0;   // above 1: tokens that already occur become less likely
  int64_t no_repeat_ngram_size = 0;  // no sequence of this many tokens repeats; 0: no limit
  int64_t min_new_tokens = 0;        // no end token before this many

  bool any() const {
    return repetition_penalty != 1.0 || no_repeat_ngram_size > 0 || min_new_tokens > 0;
  }
};

// Changes logits or log probabilities (S, V) float32 in place. seen[i]: the tokens of sequence i so
// far, `num_new` of them generated.
void apply_rules(const LogitRules& rules, std::span<const std::vector<int32_t>> seen,
                 int64_t num_new, std::span<const int32_t> end_ids, at::Tensor& logits);

}  // namespace snug::use
