// What a template asks of a conversation, read off its syntax tree.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>

#include "text/template/ast.h"

namespace snug::tokenizer::jinja {

struct Keys {
  // Keys that it looks up in any object but its own namespaces: m.key, m['key'], m.get('key'),
  // 'key' in m.
  std::set<std::string> asked;
  std::set<std::string> asked_whether_none;  // m.key is none
  std::set<std::string> variables;           // and functions
  bool marks_answers = false;                // {% generation %}
};

Keys keys_of(const Block& block);

}  // namespace snug::tokenizer::jinja
