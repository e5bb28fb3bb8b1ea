// Tokens back to text: the "decoder" of a tokenizer.json. Each step maps a list of tokens to a list
// of tokens; what is left at the end is joined.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer/json_node.h"

namespace snug::tokenizer {

class Decoder {
 public:
  using Tokens = std::vector<std::string>;
  virtual ~Decoder() = default;
  virtual Tokens apply(Tokens tokens) const = 0;
};

// Null when the node is null.
std::unique_ptr<Decoder> make_decoder(const Node& node, int depth = 0);

}  // namespace snug::tokenizer
