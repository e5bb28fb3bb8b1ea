// What is done to a text before it is cut: Unicode forms, replacements, prefixes. One class a kind,
// named as in tokenizer.json; an unknown kind is refused, since ignoring it would change ids
// silently.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "tokenizer/json_node.h"

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

// A file may nest Sequences only so deep.
inline constexpr int kMaxSequenceDepth = 16;

}  // namespace snug::tokenizer
