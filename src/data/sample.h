// One row as token ids with a label for each: LitGPT's SFTDataset, token for token.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/prompt_style.h"
#include "data/reading.h"
#include "data/rows.h"
#include "data/text_encoder.h"

namespace snug::data {

struct SampleOptions {
  bool mask_prompt = false;     // labels of the prompt become ignore_index
  int32_t ignore_index = -100;  // must be negative, so that it can never be a token
  int64_t max_seq_length = 0;   // tokens, of source and target each; 0 or less: no limit
  Reading reading = {};
};

struct Sample {
  std::vector<int32_t> ids, labels;  // same length, not shifted; a label is its id or ignore_index
  int64_t raw_tokens = 0;            // instruction and answer alone, without the prompt's template
  int64_t cut_tokens = 0;            // beyond max_seq_length
  int64_t source_tokens = 0;         // of ids, from the first on: what an encoder reads
  int64_t left_out_answers = 0;      // of a chat: that are not learnt
};

// encode(prompt) + encode(response) + end of sequence, cut to max_seq_length. A chat of several
// turns under the chat style learns every assistant turn; everything else in it counts as prompt.
// A text alone is learnt from its first token on, whatever style and mask_prompt say.
// For an encoder: prompt and end of sequence, then the last answer and end of sequence.
Sample make_sample(const Row& row, const PromptStyle& style, const TextEncoder& encoder,
                   const SampleOptions& options);

// A picture's caption: placeholders, prompt, caption, end of sequence; only the caption is learnt.
// As Blip2Processor lays them out: the beginning-of-sequence token behind the placeholders, and for
// an encoder the end of sequence behind the prompt. Text takes what max_seq_length leaves beside
// the placeholders, without a limit kCaptionTokens.
inline constexpr int64_t kCaptionTokens = 50;
Sample make_caption_sample(const std::string& prompt, const std::string& caption,
                           const TextEncoder& encoder, const SampleOptions& options);

}  // namespace snug::data
