// Text from a model, token by token, with a key-value cache.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/executor.h"
#include "models/model.h"
#include "nn/kv_cache.h"
#include "tokenizer/tokenizer.h"
#include "train/sampling.h"

namespace snug::train {

struct GenerationRequest {
  std::vector<int32_t> prompt;
  int64_t max_new_tokens = 50;
  SamplingOptions sampling;
  std::function<void(const std::string&)> on_text;  // each piece as it comes; may be empty
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
  // Borrows all. `max_positions` bounds prompt and answer together.
  TextGenerator(exec::Executor& executor, const models::Model& model,
                const tokenizer::Tokenizer& tokenizer, at::ScalarType compute);

  // Throws UserError for a prompt that is empty or longer than the model's positions.
  Generation generate(const GenerationRequest& request);

 private:
  at::Tensor forward(std::span<const int32_t> ids, nn::KvCache& cache);
  bool ends(int32_t id) const;

  exec::Executor& executor_;
  models::Dimensions dimensions_;
  const tokenizer::Tokenizer& tokenizer_;
  at::ScalarType compute_;
  std::vector<int32_t> end_ids_;
};

}  // namespace snug::train
