// YAML text -> a small tree of our own that remembers lines. A recipe needs mappings, lists and
// scalars, nothing else: anchors (and with them "billion laughs"), several documents, keys that are
// no words and keys given twice are refused here, so that no later step can meet them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace snug::recipe {

struct YamlNode {
  enum class Kind { Null, Scalar, List, Map };
  Kind kind = Kind::Null;
  int line = 0;         // from 1
  bool quoted = false;  // "null" in quotes is a text
  std::string text = {};
  std::vector<YamlNode> items = {};
  std::vector<std::pair<std::string, YamlNode>> entries = {};
};

// `name` stands in front of every error: the file, or the option whose value this is.
YamlNode read_yaml(std::string_view text, const std::string& name);

}  // namespace snug::recipe
