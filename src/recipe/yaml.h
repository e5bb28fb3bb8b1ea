// Reads YAML into a small tree that keeps line numbers. A recipe needs mappings, lists and scalars
// only: anchors (and with them "billion laughs"), several documents, keys that are not scalars and
// duplicate keys are refused here.
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

// Every error begins with `name`: the file, or the option with this value.
YamlNode read_yaml(std::string_view text, const std::string& name);

// As JSON in one line, which is YAML too: {"file":"rows.jsonl","weight":2}.
std::string one_line(const YamlNode& node);

}  // namespace snug::recipe
