// Token ids from a model: one sequence or many side by side, each as if it were alone. The
// likeliest token, one drawn by chance, or the best text of a beam search.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "use/generate/beam_search.h"
#include "use/generate/logit_rules.h"
#include "use/generate/next_logits.h"
#include "use/generate/sampling.h"

namespace snug::use {

struct GenerationOptions {
  int64_t max_new_tokens = 50;
  SamplingOptions sampling;  // with several sequences number i draws with seed + i
  int64_t num_beams = 1;     // above 1: a beam search, and nothing is drawn
  double length_penalty = 1.0;
  EarlyStopping early_stopping = EarlyStopping::No;
  LogitRules rules;
  std::vector<int32_t> end_ids;
  // Asked after each token: true leaves the answers at that. Not in a beam search.
  std::function<bool()> stop = {};
};

struct GeneratedIds {
  std::vector<int32_t> ids;  // without the token that ended them
  bool ended = false;        // by such a token, rather than by max_new_tokens or stop
};

// Called for each token as it is chosen, with its sequence's number; not in a beam search.
using OnToken = std::function<void(size_t sequence, int32_t id)>;

// All prompts at once: of a decoder, they are equally long.
std::vector<GeneratedIds> generate_ids(NextLogits& model, std::span<const Prompt> prompts,
                                       const GenerationOptions& options,
                                       const OnToken& on_token = {});

}  // namespace snug::use
