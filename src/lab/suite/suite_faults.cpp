// SPDX-License-Identifier: Apache-2.0
#include "lab/suite/suite_faults.h"

#include <fmt/format.h>

#include <algorithm>

#include "recipe/faults.h"

namespace snug::lab {
namespace {

// A file of nothing but mistakes is shown by its first ones.
constexpr size_t kMostShown = 40;

}  // namespace

void Faults::add(int line, std::string text) {
  std::pair<int, std::string> fault(line, std::move(text));
  if (std::find(faults_.begin(), faults_.end(), fault) == faults_.end())
    faults_.push_back(std::move(fault));
}

void Faults::throw_all() const {
  std::vector<std::pair<int, std::string>> sorted = faults_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> texts;
  for (const auto& [line, text] : sorted) {
    if (texts.size() == kMostShown) {
      texts.push_back(fmt::format("and {} more", sorted.size() - kMostShown));
      break;
    }
    texts.push_back(fmt::format("{}:{}: {}", file_, line, text));
  }
  recipe::throw_faults(texts, "");
}

}  // namespace snug::lab
