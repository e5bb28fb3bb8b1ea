// Generates token ids for one sequence or a batch, each as if it were alone: greedily, by sampling
// or by beam search.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "use/generate/beam_search.h"
#include "use/generate/next_logits.h"
#include "use/generate/sampling.h"

namespace snug::use {

struct GenerationOptions {
  int64_t max_new_tokens = 50;
  SamplingOptions sampling;  // sequence i draws with seed + i
  int64_t num_beams = 1;     // above 1: beam search without sampling
  double length_penalty = 1.0;
  EarlyStopping early_stopping = EarlyStopping::No;
  LogitRules rules;
  std::vector<int32_t> end_ids;
  // Called after each token; true stops generation. Not called in a beam search.
  std::function<bool()> stop = {};
};

struct GeneratedIds {
  std::vector<int32_t> ids;  // without the end token
  bool ended = false;        // by an end token, rather than by max_new_tokens or stop
};

// Called for each new token; not in a beam search.
using OnToken = std::function<void(size_t sequence, int32_t id)>;

// All prompts in one batch. The prompts of a decoder must have equal lengths.
std::vector<GeneratedIds> generate_ids(NextLogits& model, std::span<const Prompt> prompts,
                                       const GenerationOptions& options,
                                       const OnToken& on_token = {});

}  // namespace snug::use
