// Splits a text into words for the model. Words are passed from step to step as they are found, so
// no memory proportional to the text is needed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "text/tokenizer/json_node.h"

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
  // The last step is ByteLevel's alphabet, which the model applies, since it knows each letter's
  // id.
  bool byte_level = false;
};

PreTokenization make_pre_tokenization(const Node& node);

}  // namespace snug::tokenizer
