// One row as token ids with a label for each: LitGPT's SFTDataset, token for token.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "data/prompt_style.h"
#include "data/rows.h"
#include "data/text_encoder.h"

namespace snug::data {

struct SampleOptions {
  bool mask_prompt = false;     // labels of the prompt become ignore_index
  int32_t ignore_index = -100;  // must be negative, so that it can never be a token
  int64_t max_seq_length = 0;   // tokens; 0 or less: no limit
};

struct Sample {
  std::vector<int32_t> ids, labels;  // same length, not shifted; a label is its id or ignore_index
  int64_t raw_tokens = 0;            // instruction and answer alone, without the prompt's template
  int64_t cut_tokens = 0;            // beyond max_seq_length
};

// encode(prompt) + encode(response) + end of sequence, cut to max_seq_length. A chat of several
// turns under the chat style learns every assistant turn; everything else in it counts as prompt.
Sample make_sample(const Row& row, const PromptStyle& style, const TextEncoder& encoder,
                   const SampleOptions& options);

}  // namespace snug::data
