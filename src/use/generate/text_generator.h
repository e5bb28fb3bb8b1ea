// Generates text: one answer token by token, or a batch of answers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/exec/executor.h"
#include "models/model.h"
#include "recipe/options/commands.h"
#include "text/tokenizer/tokenizer.h"
#include "use/generate/generate_ids.h"

namespace snug::use {

// From the options that generate, caption and chat share.
GenerationOptions generation_options(int64_t max_new_tokens, const SamplingOptions& sampling,
                                     const recipe::BeamOptions& beams, int64_t default_beams);

struct GenerationRequest {
  Prompt prompt;
  GenerationOptions options;            // end_ids: the model's own
  std::vector<std::string> stops = {};  // texts that end an answer, which they are not part of
  std::function<void(const std::string&)> on_text =
      {};  // called with each piece of text; may be null
  // A decoder's answer so far, to be continued; only the rest is returned.
  std::vector<int32_t> begun = {};
};

struct Generation {
  std::string text;
  std::vector<int32_t> ids;  // without the end-of-sequence token
  bool ended = false;        // by the model, rather than by max_new_tokens
};

// Prints part of an answer to standard output and flushes it. A terminal gets it without control
// characters, a file or pipe unchanged.
void print_piece(const std::string& piece);

class TextGenerator {
 public:
  // Borrows its arguments.
  TextGenerator(exec::Executor& executor, const models::Model& model,
                const tokenizer::Tokenizer& tokenizer, at::ScalarType compute);

  // Throws UserError for a prompt that is empty or longer than the model's positions. Beam search
  // gives its text in one piece.
  Generation generate(const GenerationRequest& request);

  // Answers each prompt with its own seed, up to `batch_size` prompts at once.
  std::vector<Generation> generate_all(std::span<const Prompt> prompts,
                                       const GenerationOptions& options, int64_t batch_size);

 private:
  // Adapts options to the model: its end tokens, and at most the tokens that its positions allow.
  GenerationOptions feasible(const Prompt& prompt, GenerationOptions options) const;
  // The text and ids after `begun`, up to the first of `stops`.
  Generation decode(GeneratedIds made, std::span<const int32_t> begun = {},
                    std::span<const std::string> stops = {}) const;

  ModelLogits model_;
  const tokenizer::Tokenizer& tokenizer_;
  std::vector<int32_t> end_ids_;
};

}  // namespace snug::use
