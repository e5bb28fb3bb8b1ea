// SPDX-License-Identifier: Apache-2.0
#include "data/rows/column_names.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace snug::data {

std::string choose_column(const std::string& wanted, const std::vector<std::string>& found,
                          std::span<const std::string_view> usual, const char* option,
                          const std::string& where) {
  if (wanted == "auto") {
    for (const std::string_view name : usual)
      if (std::find(found.begin(), found.end(), name) != found.end()) return std::string(name);
    return "";
  }
  if (std::find(found.begin(), found.end(), wanted) != found.end()) return wanted;
  const std::string near = nearest_name(wanted, found);
  throw UserError("{}: no column {} ({}){}; columns found: {}", where, wanted, option,
                  near.empty() ? "" : "; did you mean " + near + "?", fmt::join(found, ", "));
}

}  // namespace snug::data
