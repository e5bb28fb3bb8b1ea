// A tokenizer's model: encodes pre-tokens to ids. It has no mutable state; the cache of repeated
// words is in a Scratch that the caller provides, one per thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
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

}  // namespace snug::tokenizer
