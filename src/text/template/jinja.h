// A small, safe Jinja for chat templates, with limits on work and depth and access only to the
// given variables. White space is handled as in transformers (trim_blocks, lstrip_blocks).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "text/template/ast.h"
#include "text/template/value.h"

namespace snug::tokenizer::jinja {

class Template {
 public:
  // Throws UserError, beginning with `where`, if the source does not parse.
  Template(std::string_view source, std::string where);
  // Thread-safe. Throws UserError for errors in the template and for raise_exception.
  std::string render(const Dict& variables) const;

 private:
  std::string where_;
  Block block_;
};

}  // namespace snug::tokenizer::jinja
