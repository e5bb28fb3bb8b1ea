// A row as token ids with a label for each, identical to LitGPT's SFTDataset.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/pictures/picture_text.h"
#include "data/prompts.h"
#include "data/reading.h"
#include "data/rows/rows.h"

namespace snug::data {

// What becomes of a row longer than max_seq_length: cut, or kept whole to be split or left out
// later. Auto: texts are kept whole, others cut.
enum class LongRows { Auto, Cut, Split, Drop };

struct SampleOptions {
  // Whether labels of the prompt become ignore_index; empty: of rows of turns.
  std::optional<bool> mask_prompt;
  int32_t ignore_index = -100;  // negative, so that it is never a token id
  int64_t max_seq_length = 0;   // tokens, for source and target each; 0 or less: no limit
  LongRows long_rows = LongRows::Cut;
  bool keep_empty_answers = false;  // of a chat: learn that nothing is said
  bool answers_alone = false;       // as make_samples() makes them, of rows without others too
  bool is_document = false;         // scored whole: see document_sample.h
  int64_t vocabulary = 0;           // rows of the model's embedding; 0: not known
  Reading reading = {};
};

// What a row has and its sample has not: shown before this token.
struct LeftOut {
  int64_t token = 0;
  std::string what;   // its first word takes an s: "thought", "answer without words", …
  std::string words;  // the first of them
};
// "1 thought", "2 turns of role critic"
std::string counted(int64_t count, const std::string& what);

struct Sample {
  std::vector<int32_t> ids, labels;  // same length, not shifted; a label is its id or ignore_index
  int64_t raw_tokens = 0;            // of instruction and answer, without the prompt's template
  int64_t cut_tokens = 0;            // beyond max_seq_length
  int64_t source_tokens = 0;         // the first ids, which an encoder reads
  int64_t num_pictures = 0;          // whose placeholders are among the ids
  std::vector<LeftOut> left_out;
};

// encode(prompt) + encode(response) + end of sequence, cut to max_seq_length. In the chat style the
// text is what the template makes of the whole conversation, and what it writes as an assistant's
// is learned: thoughts, calls and the mark that ends the turn too, which may be the first mark of
// the turn behind; everything else counts as prompt. Only where nothing ends the last answer, an
// end of sequence is added. A plain text is learned from
// its first token, whatever style and mask_prompt are. With an encoder: prompt and end of sequence,
// then the last answer and end of sequence.
// `grids`: of the row's pictures, for a model that has pictures among text; its prompts have no
// loss, and each answer is learned as the template writes it.
Sample make_sample(const Row& row, const PromptStyle& style, const TextEncoder& encoder,
                   const SampleOptions& options, std::span<const Grid> grids = {});

// The row's sample and those of its others, whose prompts have no loss; too long ones are cut
// together.
std::vector<Sample> make_samples(const Row& row, const PromptStyle& style,
                                 const TextEncoder& encoder, const SampleOptions& options);

// Cuts documents of one sample to `limit` tokens each; 0: nothing. All lose as many tokens of what
// they begin with and do not learn, from its beginning, and their ends only where that is not
// enough.
void cut_together(std::vector<Sample>& samples, int64_t limit, int32_t ignore_index);

// A picture's sample: placeholders, prompt, caption, end of sequence; only the caption is learned.
// The order is Blip2Processor's: the beginning-of-sequence token after the placeholders and, with
// an encoder, the end of sequence after the prompt. Marks of pictures in the texts are left out,
// since tokenizers would read more placeholders in them. Text may take what max_seq_length leaves;
// without a limit, kCaptionTokens.
inline constexpr int64_t kCaptionTokens = 50;
Sample make_caption_sample(const std::string& asked, const std::string& told,
                           const TextEncoder& encoder, const SampleOptions& options);

}  // namespace snug::data
