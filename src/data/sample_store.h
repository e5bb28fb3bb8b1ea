// All samples of a data set as token ids in one pool: 4 bytes a token, and per sample an offset and
// a few counts. An id whose label is ignored is stored as its complement, so labels cost no memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "data/sample.h"

namespace snug::data {

class SampleStore {
 public:
  SampleStore() = default;

  // Tokenizes with `num_workers` threads (0 counts as 1); the result does not depend on their
  // number. An error in a row is thrown with the row's number.
  static SampleStore tokenize(std::span<const Row> rows, const PromptStyle& style,
                              const TextEncoder& encoder, const SampleOptions& options,
                              int num_workers);

  // The same of samples that `make(0 … count-1)` gives, called from several threads at once.
  static SampleStore build(int64_t count, int32_t ignore_index,
                           const std::function<Sample(int64_t)>& make, int num_workers);

  void append(const Sample& sample);

  int64_t count() const { return static_cast<int64_t>(raw_tokens_.size()); }
  bool empty() const { return raw_tokens_.empty(); }
  int64_t length(int64_t index) const { return offsets_[index + 1] - offsets_[index]; }
  int64_t raw_tokens(int64_t index) const { return raw_tokens_[index]; }
  // Of the sample's tokens, from the first on: what an encoder reads.
  int64_t source_tokens(int64_t index) const {
    return source_tokens_.empty() ? 0 : source_tokens_[index];
  }
  Sample sample(int64_t index) const;
  // Ids as stored: value >= 0 is an id that is its own label, value < 0 the complement of an
  // ignored id.
  std::span<const int32_t> stored_ids(int64_t index) const;

  int64_t longest() const;  // tokens of the longest sample
  int64_t total_tokens() const { return offsets_.back(); }
  int64_t num_truncated() const { return num_truncated_; }
  int64_t cut_tokens() const { return cut_tokens_; }  // that the truncated samples lost together
  int64_t num_without_loss() const { return num_without_loss_; }  // nothing left to learn from
  int64_t left_out_answers() const { return left_out_answers_; }  // of chats: that are not learnt
  int32_t ignore_index() const { return ignore_index_; }
  // The `count` longest samples, longest first: together they make the largest micro-batch there
  // can be. Of source and target together where there is an encoder.
  std::vector<int64_t> longest_samples(int64_t count) const { return longest(count, &length_of); }
  // The same by what an encoder, or a decoder, reads of them.
  std::vector<int64_t> longest_sources(int64_t count) const { return longest(count, &source_of); }
  std::vector<int64_t> longest_targets(int64_t count) const { return longest(count, &target_of); }
  // Whether a quarter or more of the tokens are nobody's target: prompts, places of pictures.
  bool few_targets() const;
  // The most targets that `count` samples have together.
  int64_t most_targets(int64_t count) const;
  // Tells whether a resumed run reads the same samples as the one before.
  uint64_t fingerprint() const;

 private:
  static int64_t length_of(const SampleStore& store, int64_t i) { return store.length(i); }
  static int64_t source_of(const SampleStore& store, int64_t i) { return store.source_tokens(i); }
  static int64_t target_of(const SampleStore& store, int64_t i) {
    return store.length(i) - store.source_tokens(i);
  }
  std::vector<int64_t> longest(int64_t count, int64_t (*tokens)(const SampleStore&, int64_t)) const;

  std::vector<int32_t> pool_;
  std::vector<int64_t> offsets_ = {0};  // count + 1
  std::vector<int32_t> raw_tokens_;
  std::vector<int32_t> num_targets_;    // labels that are learnt
  std::vector<int32_t> source_tokens_;  // none where no sample has any
  int64_t all_targets_ = 0, all_sources_ = 0;
  int64_t num_truncated_ = 0, cut_tokens_ = 0, num_without_loss_ = 0;
  int64_t left_out_answers_ = 0;
  int32_t ignore_index_ = -100;
};

}  // namespace snug::data
