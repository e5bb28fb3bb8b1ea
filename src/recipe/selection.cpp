// SPDX-License-Identifier: Apache-2.0
#include "recipe/selection.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace snug::recipe {
namespace {

const std::vector<std::string>& known_parts() {
  static const std::vector<std::string> kParts{"vision", "qformer", "projection", "language"};
  return kParts;
}

}  // namespace

std::vector<std::string> part_names(const std::string& choice) {
  return choice == "all" ? std::vector<std::string>() : split_list(choice);
}

std::string part_names_fault(const std::string& choice) {
  if (choice == "all") return "";
  const std::vector<std::string> names = part_names(choice);
  if (names.empty())
    return fmt::format("model.train_parts is empty; use all, or some of {}",
                       fmt::join(known_parts(), ", "));
  for (const std::string& name : names) {
    if (std::ranges::find(known_parts(), name) != known_parts().end()) continue;
    const std::string near = nearest_name(name, known_parts());
    return fmt::format("model.train_parts = {}: there is no component {}{}; use all, or some of {}",
                       choice, name, near.empty() ? "" : fmt::format(", did you mean {}?", near),
                       fmt::join(known_parts(), ", "));
  }
  return "";
}

}  // namespace snug::recipe
