// A tokenizer's model: encodes pre-tokens to ids. It has no mutable state; the cache of repeated
// words is in a Scratch that the caller provides, one per thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer/json_node.h"
#include "text/tokenizer/vocabulary.h"

namespace snug::tokenizer {

class Model {
 public:
  class Scratch {
   public:
    virtual ~Scratch() = default;
  };

  virtual ~Model() = default;
  virtual std::unique_ptr<Scratch> make_scratch() const = 0;
  // Appends the ids of one pre-token. In a byte-level pipeline `word` is raw text, and with
  // `byte_level` each byte is encoded as its GPT-2 letter.
  virtual void encode(std::string_view word, bool byte_level, Scratch& scratch,
                      std::vector<int32_t>& ids) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  Vocabulary vocabulary_;
};

// From the "model" object of a tokenizer.json: BPE, Unigram or WordLevel.
std::unique_ptr<Model> make_model(const Node& node);
std::unique_ptr<Model> make_bpe(const Node& node);
std::unique_ptr<Model> make_unigram(const Node& node);

// A cache of words' ids, direct-mapped and of fixed size: a lookup is one hash and one comparison,
// nothing is allocated after construction, and a colliding word replaces the older one.
class WordCache {
 public:
  bool find(std::string_view word, std::vector<int32_t>& ids) const {
    if (word.size() > kMaxBytes) return false;
    const Entry& entry = entries_[slot_of(word)];
    if (entry.num_bytes != word.size() || std::memcmp(entry.bytes, word.data(), word.size()) != 0) {
      return false;
    }
    ids.insert(ids.end(), entry.ids, entry.ids + entry.num_ids);
    return true;
  }

  void store(std::string_view word, std::span<const int32_t> ids) {
    if (word.empty() || word.size() > kMaxBytes || ids.size() > kMaxIds) return;
    Entry& entry = entries_[slot_of(word)];
    entry.num_bytes = static_cast<uint8_t>(word.size());
    entry.num_ids = static_cast<uint8_t>(ids.size());
    std::memcpy(entry.bytes, word.data(), word.size());
    std::copy(ids.begin(), ids.end(), entry.ids);
  }

 private:
  static constexpr size_t kSlots = 1 << 15;
  static constexpr size_t kMaxBytes = 30;
  static constexpr size_t kMaxIds = 8;
  struct Entry {
    uint8_t num_bytes = 0;  // 0: free
    uint8_t num_ids = 0;
    char bytes[kMaxBytes];
    int32_t ids[kMaxIds];
  };
  static size_t slot_of(std::string_view word) { return Vocabulary::hash(word) & (kSlots - 1); }

  std::vector<Entry> entries_ = std::vector<Entry>(kSlots);
};

}  // namespace snug::tokenizer
