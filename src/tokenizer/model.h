// What stands between words and ids. A model keeps no state of its own between calls; what makes
// repeated words cheap lives in a Scratch that the caller lends, one per thread at a time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "tokenizer/json_node.h"
#include "tokenizer/vocabulary.h"

namespace snug::tokenizer {

class Model {
 public:
  class Scratch {
   public:
    virtual ~Scratch() = default;
  };

  virtual ~Model() = default;
  virtual std::unique_ptr<Scratch> make_scratch() const = 0;
  // Appends the ids of one pre-token. In a byte-level pipeline `word` is raw text and `byte_level`
  // asks for each of its bytes to stand as its GPT-2 letter.
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
