// The input of one forward pass: N tokens of S documents, packed one after another, with attention
// within each. In the padded form every document has the length of the longest; padding comes after
// the real tokens, so that the causal mask hides it, and its targets are ignored. Both forms have
// the same (token, target) pairs, hence the same loss.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/sample_store.h"

namespace snug::data {

// The rows of a document's beginning, where they are those of its sample's first document.
struct SharedRows {
  int64_t first_row = 0, count = 0;
};

struct MicroBatch {
  // (N). targets[i] is the label of the NEXT token of the same document; ignore_index at a
  // document's end, on padding and inside a masked prompt. positions count from 0 in each document.
  std::vector<int32_t> input_ids, targets, positions;
  std::vector<int32_t> cu_seqlens;  // (S + 1), from 0 to N
  // (S), or empty where each document has all of its rows (SampleStore::share_prompts).
  std::vector<SharedRows> shared;
  // The most tokens that as many samples have together, counting shared ones in each document.
  int64_t most_keys = 0;
  // (N) in the padded form, where the model asks for it: 1, of padding 0.
  std::vector<float> real;
  int64_t max_seqlen = 0;
  int32_t ignore_index = -100;
  int64_t loss_tokens = 0;  // targets that are not ignore_index
  // Compute logits only for rows whose targets count, because few do. A plan and its training
  // derive this from the same samples and options.
  bool picks_rows = false;
  int64_t real_tokens = 0;    // without padding
  int64_t padded_tokens = 0;  // S × longest, in both forms, as LitGPT counts
  int64_t raw_tokens = 0;     // without the prompt's template

  // With an encoder: its input (M), never padded, since attention in it is not causal. input_ids
  // are then the targets shifted by one, after a start token. real_tokens and padded_tokens count
  // both.
  std::vector<int32_t> source_ids, source_positions, source_cu_seqlens;
  int64_t source_max_seqlen = 0;
  // For a model that reads pictures: (num_pictures, image_size, image_size, 3), filled in only by
  // PictureBatchSource; and the rows of the tokens (of the source, if there is one) with the
  // pictures' placeholders, in order.
  std::vector<uint8_t> pixels;
  int64_t num_pictures = 0;
  int64_t image_size = 0;
  std::vector<int32_t> picture_rows;
  // The store's columns: (S, width), or (N, width).
  std::vector<ColumnOfNumbers> columns;
};

struct MicroBatchOptions {
  bool packing = true;
  // Leave the head's product of rows without a target out where packed samples have many of those,
  // which a plan must know; padded ones always do.
  bool picks_few_targets = true;
  int32_t ignore_index = -100;
  int32_t pad_id = 0;
  // Train on padding too: every document is padded to the longest and padding tokens are targets,
  // as in scripts that use the padded ids as labels.
  bool padding_in_loss = false;
  Reading reading = {};
};

MicroBatch make_micro_batch(std::span<const Sample> samples, const MicroBatchOptions& options = {});
MicroBatch make_micro_batch(const SampleStore& store, std::span<const int64_t> indices,
                            const MicroBatchOptions& options = {});

// A source of micro-batches: of tokens in memory, or of pictures that worker threads read and
// resize ahead.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Makes the micro-batch of these samples. A plan has one that stands for all.
  virtual std::shared_ptr<const MicroBatch> make(std::span<const int64_t> indices) = 0;

  // The same samples' other documents, which are read without learning from them
  // (nn::Objective::estimate). Null: they have none.
  virtual BatchSource* others() { return nullptr; }

  // Announces the next micro-batches in order, so that they can be made ahead. Requesting others is
  // allowed but waits.
  virtual void expect(const std::vector<std::vector<int64_t>>& /*micro_batches*/) {}

  // The number of requested samples that were left out of the loss.
  virtual int64_t num_unreadable() const { return 0; }
};

// For samples without pictures. Borrows the stores.
class TokenBatchSource : public BatchSource {
 public:
  TokenBatchSource(const SampleStore& samples, const MicroBatchOptions& options)
      : samples_(samples), options_(options) {}
  // `others`: a document for each sample.
  TokenBatchSource(const SampleStore& samples, const SampleStore& others,
                   const MicroBatchOptions& options)
      : TokenBatchSource(samples, options) {
    if (!others.empty()) others_ = std::make_unique<TokenBatchSource>(others, options);
  }
  std::shared_ptr<const MicroBatch> make(std::span<const int64_t> indices) override {
    return std::make_shared<const MicroBatch>(make_micro_batch(samples_, indices, options_));
  }
  BatchSource* others() override { return others_.get(); }

 private:
  const SampleStore& samples_;
  MicroBatchOptions options_;
  std::unique_ptr<TokenBatchSource> others_;
};

}  // namespace snug::data
