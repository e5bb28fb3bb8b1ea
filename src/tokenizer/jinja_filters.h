// A table of filters by name. Those of texts and numbers and those of lists are two tables in two
// files.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "tokenizer/jinja_runtime.h"

namespace snug::tokenizer::jinja {

struct NamedFilter {
  std::string_view name;
  Filter function;
};

std::span<const NamedFilter> text_filters();

}  // namespace snug::tokenizer::jinja
