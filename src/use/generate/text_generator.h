// Text from a model: one answer token by token, or many answers side by side.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/exec/executor.h"
#include "models/model.h"
#include "text/tokenizer/tokenizer.h"
#include "use/generate/generate_ids.h"

namespace snug::use {

struct GenerationRequest {
  Prompt prompt;
  GenerationOptions options;                             // end_ids: the model's own
  std::function<void(const std::string&)> on_text = {};  // each piece as it comes; may be empty
  // A decoder's answer so far, which it goes on from: what comes back is the rest alone.
  std::vector<int32_t> begun = {};
};

struct Generation {
  std::string text;
  std::vector<int32_t> ids;  // without the end-of-sequence token
  bool ended = false;        // the model ended it, rather than max_new_tokens
};

// Part of an answer to standard output, at once. In a terminal without the control characters that
// it would obey; files and pipes get the text as it is.
void print_piece(const std::string& piece);

class TextGenerator {
 public:
  // Borrows all.
  TextGenerator(exec::Executor& executor, const models::Model& model,
                const tokenizer::Tokenizer& tokenizer, at::ScalarType compute);

  // Throws UserError for a prompt that is empty or longer than the model's positions. A beam
  // search's text comes as one piece.
  Generation generate(const GenerationRequest& request);

  // An answer to each prompt, up to `batch_size` of them at once, drawn with a seed of its own.
  std::vector<Generation> generate_all(std::span<const Prompt> prompts,
                                       const GenerationOptions& options, int64_t batch_size);

 private:
  // As the model can do it: its own end tokens, no more tokens than it can see.
  GenerationOptions feasible(const Prompt& prompt, GenerationOptions options) const;
  // The text and ids that follow `begun`.
  Generation decode(GeneratedIds made, std::span<const int32_t> begun = {}) const;

  ModelLogits model_;
  const tokenizer::Tokenizer& tokenizer_;
  std::vector<int32_t> end_ids_;
};

}  // namespace snug::use
