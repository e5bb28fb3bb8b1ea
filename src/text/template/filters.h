// Tables of filters by name: one for texts and numbers, one for lists, in two files.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "text/template/runtime.h"

namespace snug::tokenizer::jinja {

struct NamedFilter {
  std::string_view name;
  Filter function;
};

std::span<const NamedFilter> text_filters();

}  // namespace snug::tokenizer::jinja
