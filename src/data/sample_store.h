// All samples of a data set as token ids in one array: 4 bytes per token, and per document an
// offset and a few counts. An id whose label is ignored is stored as its bitwise complement, so
// labels cost no memory. A sample is a document, or several that stay together: those of a pair, or
// of a block of text. What is said of a sample is the sum over its documents.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "data/sample.h"

namespace snug::data {

// Numbers beside the tokens, which an objective asks for: `width` of each document, or of each of
// its tokens as a target.
struct ColumnOfNumbers {
  bool is_per_target = false;
  int64_t width = 1;
  float fill = 0;  // of rows of a micro-batch without a target
  std::vector<float> values = {};
};

class SampleStore {
 public:
  SampleStore() = default;

  // Rows with others become samples of several documents, all of them then. Tokenizes with
  // `num_workers` threads (0 counts as 1); the result does not depend on their
  // number. An error in a row is thrown with the row's number.
  static SampleStore tokenize(std::span<const Row> rows, const PromptStyle& style,
                              const TextEncoder& encoder, const SampleOptions& options,
                              int num_workers);

  // The same for the samples of `make(0 … count-1)`, which must be thread-safe.
  static SampleStore build(int64_t count, int32_t ignore_index,
                           const std::function<Sample(int64_t)>& make, int num_workers);
  // The same of samples of several documents each.
  static SampleStore build_groups(int64_t count, int64_t documents_per_sample, int32_t ignore_index,
                                  const std::function<std::vector<Sample>(int64_t)>& make,
                                  int num_workers);

  // Makes samples of so many documents each out of those that are there, in their order. Nothing
  // may be appended or left out afterwards.
  void group(int64_t documents_per_sample);

  // Leaves out the samples from which nothing is learnt, such as a pair of which answers are
  // equal or one is empty, which
  // num_without_loss() still counts, and of `beside`, which has an entry for each sample, theirs.
  void drop_without_loss(std::vector<int64_t>& beside);

  struct Blocks {
    int64_t length = 0;  // tokens
    // How many tokens of a document a piece of it repeats, which are not learnt again.
    int64_t overlap = 0;
    bool joins = false;
  };
  // Cuts documents into pieces of at most blocks.length tokens, so that nothing of them is lost.
  // Each is a sample of its own; joined, samples are blocks of that length, but for the last one,
  // of as many documents and pieces as they take. `beside` has an entry for each document, and has
  // then one for each sample, that of its first piece. Nothing may be appended or left out
  // afterwards.
  void cut_into_blocks(const Blocks& blocks, std::vector<int64_t>& beside);
  bool is_in_blocks() const { return !first_.empty(); }
  // Leaves out the samples with a document of more tokens, and what is beside them. Returns how
  // many they were.
  int64_t drop_longer(int64_t length, std::vector<int64_t>& beside);

  void append(const Sample& sample);
  // Appends the samples of another store of the same kind `copies` times; a store of blocks makes
  // one of this too. What was cut and left out of them counts once.
  void append(const SampleStore& more, int64_t copies = 1);
  // From now on the tokens with which all documents of a sample begin, such as the prompt of two
  // answers, count once, and micro-batches that are packed have them once: but for the last of
  // them, from which each document's first target is learnt, and only before the first target.
  // Nothing may be appended or left out afterwards. Nothing changes where that makes the samples
  // smaller by less than `least` of their tokens, which copies of the keys are not worth.
  void share_prompts(double least = 0.05);
  bool shares_prompts() const { return !shared_.empty(); }
  int64_t shared_tokens(int64_t index) const {
    return shared_.empty() ? 0 : shared_[static_cast<size_t>(place(index))];
  }

  // Repeats the samples up to this number without using memory, for synthetic data. Nothing may be
  // appended afterwards.
  void repeat_to(int64_t count);

  // Of all different samples, in their order; none may be added or left out afterwards.
  void set_columns(std::vector<ColumnOfNumbers> columns);
  const std::vector<ColumnOfNumbers>& columns() const { return columns_; }
  // Document d of a sample.
  struct Document {
    std::span<const int32_t> stored;  // as stored_ids()
    int64_t raw_tokens = 0;
    int64_t source_tokens = 0;  // how many of its first tokens an encoder reads
    int64_t num_pictures = 0;
  };
  Document document(int64_t index, int64_t d) const;
  // Its numbers: (width), or (its tokens, width).
  std::span<const float> numbers(const ColumnOfNumbers& column, int64_t index, int64_t d) const;

  int64_t documents_per_sample() const { return documents_per_sample_; }
  int64_t count() const { return count_ > 0 ? count_ : num_different(); }
  // How many it is made of.
  int64_t num_documents(int64_t index) const {
    return begin_of(place(index) + 1) - first_document(index);
  }
  int64_t num_different() const {
    return is_in_blocks() ? std::ssize(first_) - 1
                          : std::ssize(raw_tokens_) / documents_per_sample_;
  }
  bool empty() const { return num_different() == 0; }
  // Tokens of its documents, shared ones counted once.
  int64_t length(int64_t index) const {
    return whole_length(index) - (documents_per_sample_ - 1) * shared_tokens(index);
  }
  // The same with shared ones counted in each document.
  int64_t whole_length(int64_t index) const {
    const int64_t first = first_document(index);
    return offsets_[first + num_documents(index)] - offsets_[first];
  }
  // Tokens of its longest document.
  int64_t longest_document(int64_t index) const;
  int64_t raw_tokens(int64_t index) const { return sum_of(raw_tokens_, index); }
  int64_t source_tokens(int64_t index) const { return sum_of(source_tokens_, index); }
  int64_t num_targets(int64_t index) const { return sum_of(num_targets_, index); }
  int64_t num_pictures(int64_t index) const { return sum_of(num_pictures_, index); }
  // The same as a sample of its own.
  Sample sample(int64_t index, int64_t d = 0) const;
  // Ids as stored: value >= 0 is an id that is its own label, value < 0 the complement of an
  // ignored id.
  std::span<const int32_t> stored_ids(int64_t index) const;

  int64_t longest() const;  // tokens of the longest document
  // No sample has more, with all documents as long as the longest or in a block.
  int64_t most_tokens_of_sample() const;
  double mean_document() const;  // tokens
  int64_t total_tokens() const;  // shared ones counted once
  int64_t num_truncated() const { return num_truncated_; }
  int64_t cut_tokens() const { return cut_tokens_; }              // cut from all samples together
  int64_t num_without_loss() const { return num_without_loss_; }  // samples without targets
  // What rows have and samples have not: how often each, and the first ones of a sample.
  const std::map<std::string, int64_t>& left_out() const { return left_out_; }
  int64_t left_out(const std::string& what) const {
    const auto found = left_out_.find(what);
    return found == left_out_.end() ? 0 : found->second;
  }
  std::span<const LeftOut> left_out_of(int64_t index, int64_t d = 0) const;
  int32_t ignore_index() const { return ignore_index_; }
  // The `count` longest samples, longest first, which form the largest possible micro-batch. With
  // an encoder the length is that of source and target together. If there are fewer, each may be
  // there as often as all would be to make up so many.
  // Without packing the length is that of the longest document, to which all are padded.
  std::vector<int64_t> longest_samples(int64_t count, bool packing = true) const {
    return longest(count, packing ? &length_of : &padded_to);
  }
  // The same by length of the source, or of the target.
  std::vector<int64_t> longest_sources(int64_t count) const { return longest(count, &source_of); }
  std::vector<int64_t> longest_targets(int64_t count) const { return longest(count, &target_of); }
  // Whether a quarter or more of the tokens are not targets (prompts, placeholders of pictures).
  bool few_targets() const;
  // The most that `count` samples can have together: targets, pictures, and tokens with shared ones
  // counted in each document.
  int64_t most_targets(int64_t count) const { return most(count, &targets_of); }
  int64_t most_pictures(int64_t count) const { return most(count, &pictures_of); }
  int64_t most_keys(int64_t count) const;  // where prompts are shared
  int64_t most_documents(int64_t count) const { return most(count, &documents_of); }
  double mean_pictures() const;  // of a sample
  // A hash of the tokens and columns, to check that a resumed run reads the same samples.
  uint64_t fingerprint() const;

 private:
  bool teaches(int64_t index) const;
  int64_t place(int64_t index) const { return count_ > 0 ? index % num_different() : index; }
  // Of the sample at a place.
  int64_t begin_of(int64_t place) const {
    return is_in_blocks() ? first_[static_cast<size_t>(place)] : place * documents_per_sample_;
  }
  int64_t first_document(int64_t index) const { return begin_of(place(index)); }
  void make_blocks(std::vector<int64_t> first);
  void keep_samples(const std::function<bool(int64_t)>& is_kept, std::vector<int64_t>& beside);
  // Of counts by document, none of which are 0.
  int64_t sum_of(const std::vector<int32_t>& counts, int64_t index) const {
    if (counts.empty()) return 0;
    const auto first = counts.begin() + first_document(index);
    return std::accumulate(first, first + num_documents(index), int64_t{0});
  }
  static int64_t length_of(const SampleStore& store, int64_t i) { return store.length(i); }
  static int64_t padded_to(const SampleStore& store, int64_t i) {
    return store.longest_document(i);
  }
  static int64_t whole_length_of(const SampleStore& store, int64_t i) {
    return store.whole_length(i);
  }
  static int64_t documents_of(const SampleStore& store, int64_t i) {
    return store.num_documents(i);
  }
  static int64_t targets_of(const SampleStore& store, int64_t i) { return store.num_targets(i); }
  static int64_t pictures_of(const SampleStore& store, int64_t i) { return store.num_pictures(i); }
  static int64_t source_of(const SampleStore& store, int64_t i) { return store.source_tokens(i); }
  static int64_t target_of(const SampleStore& store, int64_t i) {
    return store.length(i) - store.source_tokens(i);
  }
  std::vector<int64_t> longest(int64_t count, int64_t (*tokens)(const SampleStore&, int64_t)) const;
  int64_t most(int64_t wanted, int64_t (*of)(const SampleStore&, int64_t)) const;
  // By how many tokens sharing makes the first `count` different samples smaller.
  int64_t shared_of_first(int64_t count) const;
  // How often each is among the most of `wanted` samples.
  int64_t times_each(int64_t wanted) const;
  void append_count(std::vector<int32_t>& counts, int64_t count) const;

  int64_t documents_per_sample_ = 1;
  int64_t count_ = 0;  // of repeated samples; 0: no repetition
  // By document.
  std::vector<int32_t> pool_;
  std::vector<int64_t> offsets_ = {0};  // one more than documents
  std::vector<int32_t> raw_tokens_;
  std::vector<int32_t> num_targets_;    // labels that are learnt
  std::vector<int32_t> source_tokens_;  // empty if no sample has any
  std::vector<int32_t> num_pictures_;   // the same
  std::vector<int64_t> first_;          // documents before each block, and all; empty: no blocks
  std::vector<int32_t> shared_;         // by sample; empty: nothing is shared
  std::vector<int32_t> whole_lengths_;  // of samples that share, longest first
  std::vector<ColumnOfNumbers> columns_;
  int64_t all_targets_ = 0, all_sources_ = 0;
  int64_t num_truncated_ = 0, cut_tokens_ = 0, num_without_loss_ = 0;
  std::map<std::string, int64_t> left_out_;
  // By sample, of the first samples that have any: so many that nobody looks at more.
  std::map<int64_t, std::vector<LeftOut>> left_out_of_;
  int32_t ignore_index_ = -100;
};

}  // namespace snug::data
