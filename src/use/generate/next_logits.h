// The logits of the next token for a batch of growing sequences. Keeps the keys and values of all
// earlier tokens.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/nn/kv_cache.h"
#include "engine/exec/executor.h"
#include "models/model.h"

namespace snug::use {

// The start of one sequence: the prompt's tokens, with a picture's placeholders if there is one. An
// encoder-decoder's encoder reads them.
struct Prompt {
  std::vector<int32_t> ids;
  // What the model sees of it, (n, image_size, image_size, 3); empty: none.
  std::vector<uint8_t> picture = {};
};

// All logits are (S, V) float32, after the last token of each of the S sequences.
class NextLogits {
 public:
  virtual ~NextLogits() = default;
  // Starts new sequences. A decoder's prompts must have equal lengths.
  virtual at::Tensor start(std::span<const Prompt> prompts, int64_t max_new_tokens) = 0;
  // Appends one token to each sequence.
  virtual at::Tensor next(std::span<const int32_t> ids) = 0;
  // Replaces sequence i by sequence from[i].
  virtual void select(const std::vector<int64_t>& from) = 0;
  // The first token of an encoder-decoder's decoder; std::nullopt for a decoder alone.
  virtual std::optional<int32_t> decoder_start() const = 0;
};

class ModelLogits : public NextLogits {
 public:
  // Borrows both.
  ModelLogits(exec::Executor& executor, const models::Model& model, at::ScalarType compute);

  at::Tensor start(std::span<const Prompt> prompts, int64_t max_new_tokens) override;
  at::Tensor next(std::span<const int32_t> ids) override;
  void select(const std::vector<int64_t>& from) override;
  std::optional<int32_t> decoder_start() const override;

  // Throws UserError for a prompt that is empty, too long, from another vocabulary, or without the
  // picture that the model needs. Returns the number of tokens that may follow.
  int64_t check(const Prompt& prompt) const;

 private:
  at::Tensor run(nn::Batch batch);

  exec::Executor& executor_;
  models::Dimensions dimensions_;
  data::Reading reads_;
  at::ScalarType compute_;
  std::optional<nn::KvCache> cache_;
};

}  // namespace snug::use
