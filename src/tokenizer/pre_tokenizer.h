// Cutting a text into the words that the model encodes one by one. Words are handed on as they are
// found, step to step, so that nothing proportional to the text is kept.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "tokenizer/json_node.h"

namespace snug::tokenizer {

struct Word {
  std::string_view text;
  bool at_start;  // of the whole text; Metaspace's prepend_scheme "first" asks
};

using WordSink = std::function<void(const Word&)>;

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Calls `sink` for each non-empty part in order; the parts live only during the call.
  virtual void split(const Word& word, const WordSink& sink) const = 0;
};

struct PreTokenization {
  std::unique_ptr<PreTokenizer> steps;  // null: the text is one word
  // The last step was ByteLevel's alphabet. It is left to the model, which knows each letter's id.
  bool byte_level = false;
};

PreTokenization make_pre_tokenization(const Node& node);

}  // namespace snug::tokenizer
