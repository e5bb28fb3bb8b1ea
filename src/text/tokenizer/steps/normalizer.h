// Normalization of a text before it is split: Unicode forms, replacements, prefixes. One class per
// kind, named as in tokenizer.json; unknown kinds are refused, since ignoring them would silently
// change ids.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "text/tokenizer/json_node.h"

namespace snug::tokenizer {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual std::string apply(std::string text) const = 0;
};

// `depth` counts nested Sequences. Null when the node is null.
std::unique_ptr<Normalizer> make_normalizer(const Node& node, int depth = 0);
// Precompiled: sentencepiece's table of character rewrites.
std::unique_ptr<Normalizer> make_charsmap(const Node& node);

// The maximum nesting of Sequences in a file.
inline constexpr int kMaxSequenceDepth = 16;

}  // namespace snug::tokenizer
