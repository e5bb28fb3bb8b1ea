// A small, safe Jinja: what chat templates use, run under a budget of work and depth, without
// access to anything but the values handed in. Spaces and newlines come out as transformers sets
// Jinja up (trim_blocks, lstrip_blocks).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_value.h"

namespace snug::tokenizer::jinja {

class Template {
 public:
  // Throws UserError, beginning with `where`, if the source does not parse.
  Template(std::string_view source, std::string where);
  // May run on many threads at once. Throws UserError for what the template does wrong or refuses.
  std::string render(const Dict& variables) const;

 private:
  std::string where_;
  Block block_;
};

}  // namespace snug::tokenizer::jinja
