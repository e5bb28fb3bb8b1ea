// A model as generation sees it: sequences that grow side by side by a token each, and what it
// thinks of the next one. Keeps the keys and values of what it has seen.
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

// What one sequence begins with: the prompt's tokens, those that a picture's features take first
// among them. An encoder reads them where there is one.
struct Prompt {
  std::vector<int32_t> ids;
  std::vector<uint8_t> picture = {};  // (image_size, image_size, 3); empty: none
};

// All logits are (S, V) float32, after the last token of each of the S sequences.
class NextLogits {
 public:
  virtual ~NextLogits() = default;
  // Forgets what was before. A decoder's prompts are equally long.
  virtual at::Tensor start(std::span<const Prompt> prompts, int64_t max_new_tokens) = 0;
  // One token more for each sequence.
  virtual at::Tensor next(std::span<const int32_t> ids) = 0;
  // Sequence i is from now on what sequence from[i] was.
  virtual void select(const std::vector<int64_t>& from) = 0;
  // The token that a decoder beside an encoder begins with; none: it begins with the prompt.
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

  // Throws UserError for a prompt that is empty, longer than the model can see, of another
  // vocabulary, or without the picture that the model reads. Returns how many tokens may follow.
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
