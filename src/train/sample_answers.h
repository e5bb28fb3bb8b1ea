// Greedy answers to a few held-out questions, to compare before and after training.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "data/dataset.h"
#include "engine/engine.h"
#include "models/model.h"
#include "text/tokenizer/tokenizer.h"

namespace snug::train {

struct SampleAnswer {
  std::string question, expected, answer;
};

struct SampleAnswerOptions {
  int64_t count = 3;
  int64_t max_new_tokens = 50;
  int64_t max_seq_length = 0;   // longer questions are passed over, as no plan knows them; 0: none
  std::string first = "first";  // first, random (by seed) or an index
  uint64_t seed = 0;
};

// Throws UserError if `first` does not name a question.
void check_sample_options(const data::Dataset& dataset, const SampleAnswerOptions& options);

// Prepares the model for texts as long as question and answer. Throws UserError if all questions
// are too long.
std::vector<SampleAnswer> answer_samples(const engine::Engine& engine, models::Model& model,
                                         const tokenizer::Tokenizer& tokenizer,
                                         const data::Dataset& dataset,
                                         const SampleAnswerOptions& options);

// The same for the first options.count held-out pictures: their rows, their captions, and what the
// model writes. Of several rows with the same picture, only the first counts. Empty if the data has
// no pictures.
std::vector<SampleAnswer> caption_held_out(const engine::Engine& engine, models::Model& model,
                                           const tokenizer::Tokenizer& tokenizer,
                                           const data::Dataset& dataset,
                                           const SampleAnswerOptions& options);

// "Q: …\n  expected: …\n  before: …\n  after: …" for each; `after` may be empty.
std::string show_answers(const std::vector<SampleAnswer>& before,
                         const std::vector<SampleAnswer>& after);

}  // namespace snug::train
