// SPDX-License-Identifier: Apache-2.0
#include "recipe/tables/choices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace snug::recipe {

size_t index_of_word(std::string_view word, std::span<const std::string_view> known) {
  const auto found = std::ranges::find(known, word);
  if (found == known.end())
    throw UserError("\"{}\" is not one of {}", word, fmt::join(known, ", "));
  return static_cast<size_t>(found - known.begin());
}

}  // namespace snug::recipe
