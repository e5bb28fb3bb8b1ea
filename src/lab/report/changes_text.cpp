// What a row's options change against the row that it came from.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lab/report/explain.h"
#include "lab/report/figures.h"

namespace snug::lab {
namespace {

constexpr size_t kMostOptions = 4;

// The row by this id, also one that was not asked for.
const Row* any_row(const LabRun& run, const std::string& id) {
  if (const Row* row = run.find_row(id); row != nullptr) return row;
  const auto found = std::find_if(run.suite.rows.begin(), run.suite.rows.end(),
                                  [&](const Row& row) { return row.id == id; });
  return found == run.suite.rows.end() ? nullptr : &*found;
}

std::map<std::string, std::string> last_values(const Settings& settings) {
  std::map<std::string, std::string> out;
  for (const auto& [key, value] : settings) out[key] = value;
  return out;
}

}  // namespace

std::string changes_text(const LabRun& run, const Row& row) {
  if (!row.change.empty()) return row.change;
  if (row.from.empty() && !row.not_run.empty()) return "";  // listed alone, without its options
  const Row* base = row.from.empty() ? comparable_row(run, row) : any_row(run, row.from);
  if (base == nullptr) return "";
  std::vector<std::string> parts;
  if (base->model != row.model)
    parts.push_back(fmt::format("model {} → {}", base->model, row.model));
  auto before = last_values(base->options), after = last_values(row.options);
  if (base->model != row.model) {  // each has its recipe: that is the same change
    before.erase("config");
    after.erase("config");
  }
  for (const auto& [key, value] : after) {
    const auto old = before.find(key);
    if (old == before.end())
      parts.push_back(fmt::format("{} {}", key, value));
    else if (old->second != value)
      parts.push_back(fmt::format("{} {} → {}", key, old->second, value));
  }
  for (const auto& [key, value] : before)
    if (!after.contains(key)) parts.push_back(fmt::format("no {} {}", key, value));
  if (parts.size() > kMostOptions) {
    const size_t more = parts.size() - kMostOptions;
    parts.resize(kMostOptions);
    parts.push_back(fmt::format("{} more", more));
    return joined(parts, " and ");
  }
  return joined(parts, ", ");
}

}  // namespace snug::lab
