// SPDX-License-Identifier: Apache-2.0
#include "lab/report/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "lab/report/figures.h"

namespace snug::lab {
namespace {

constexpr double kSamePeak = 0.02;     // a measured peak is the planned one up to this share
constexpr double kWorthSaying = 0.02;  // of the larger peak
constexpr size_t kMostClauses = 3;

// The change of one category, or of several that changed by the same factor.
struct Change {
  std::vector<std::string> categories;
  int64_t before = 0, after = 0;
  int64_t size() const { return std::abs(after - before); }
  double ratio() const { return static_cast<double>(after) / static_cast<double>(before); }
};

bool is_near(double value, double wanted) { return std::abs(value / wanted - 1) < 0.02; }

// Workspace, the one word without a plural, alone.
bool is_singular(const Change& change) {
  return change.categories.size() == 1 && change.categories[0] == "workspace";
}

std::string clause(const Change& change) {
  std::vector<std::string> names;
  for (const std::string& category : change.categories) names.push_back(category_words(category));
  const bool one = is_singular(change);
  const std::string who = joined(names);
  if (change.before == 0)
    return fmt::format("{} now {} {}", who, one ? "takes" : "take", memory_text(change.after));
  if (change.after == 0)
    return fmt::format("{} {} gone (before: {})", who, one ? "is" : "are",
                       memory_text(change.before));
  const std::string pair = memory_pair(change.before, change.after);
  const double ratio = change.ratio();
  const char* share = is_near(ratio, 0.5)    ? "half"
                      : is_near(ratio, 0.25) ? "a quarter"
                      : is_near(ratio, 2)    ? "twice as much"
                      : is_near(ratio, 4)    ? "four times as much"
                                             : nullptr;
  if (share != nullptr)
    return fmt::format("{} {} {} ({})", who, one ? "takes" : "take", share, pair);
  const bool falls = change.after < change.before;
  return fmt::format("{} {} ({})", who, falls ? (one ? "falls" : "fall") : (one ? "rises" : "rise"),
                     pair);
}

// The largest changes first; categories that changed by one and the same factor are one.
std::vector<Change> changes_between(const Figures& before, const Figures& after) {
  const auto least = static_cast<int64_t>(
      kWorthSaying * static_cast<double>(std::max(before.peak_allocated, after.peak_allocated)));
  std::vector<Change> out;
  for (const std::string& category : categories_of({&before, &after})) {
    const Change change{{category}, bytes_of(before, category), bytes_of(after, category)};
    if (change.size() < std::max<int64_t>(least, 1)) continue;
    const auto kin = std::find_if(out.begin(), out.end(), [&](const Change& other) {
      return change.before > 0 && change.after > 0 && other.before > 0 && other.after > 0 &&
             is_near(change.ratio(), other.ratio());
    });
    if (kin == out.end()) {
      out.push_back(change);
    } else {
      kin->categories.push_back(category);
      kin->before += change.before;
      kin->after += change.after;
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Change& a, const Change& b) { return a.size() > b.size(); });
  if (out.size() > kMostClauses) out.resize(kMostClauses);
  return out;
}

// 4, 2, 1 or 8; 0 if the figures give another number: shards, an embedding in another type.
int bytes_a_parameter(const RowResult& result, const Figures& figures) {
  if (result.parameters <= 0) return 0;
  const double each =
      static_cast<double>(bytes_of(figures, "parameters")) / static_cast<double>(result.parameters);
  for (const int whole : {1, 2, 4, 8})
    if (is_near(each, whole)) return whole;
  return 0;
}

const std::vector<Moment>* timeline_of(const RowResult& result, const Figures& figures) {
  if (!figures.timeline.empty()) return &figures.timeline;
  if (!result.predicted || result.predicted->timeline.empty()) return nullptr;
  return &result.predicted->timeline;
}

}  // namespace

const Moment* peak_moment(const RowResult& result, const Figures& figures) {
  const std::vector<Moment>* timeline = timeline_of(result, figures);
  if (timeline == nullptr) return nullptr;
  const auto highest =
      std::max_element(timeline->begin(), timeline->end(),
                       [](const Moment& a, const Moment& b) { return a.allocated < b.allocated; });
  const auto peak = static_cast<double>(figures.peak_allocated);
  const double apart = std::abs(static_cast<double>(highest->allocated) - peak);
  return apart <= kSamePeak * peak ? &*highest : nullptr;
}

std::string place_words(const Moment& moment) {
  if (moment.unit.empty() || moment.unit == "outside any unit") return moment.phase;
  return moment.unit + ", " + moment.phase;
}

Figures at_their_most(const RowResult& result, const Figures& figures) {
  Figures out = figures;
  out.by_category.clear();
  for (const Moment& moment : *timeline_of(result, figures))
    for (const auto& [category, bytes] : moment.by_category)
      out.by_category[category] = std::max(out.by_category[category], bytes);
  return out;
}

std::vector<std::string> category_clauses(const Figures& before, const Figures& after) {
  std::vector<std::string> clauses;
  for (const Change& change : changes_between(before, after)) clauses.push_back(clause(change));
  return clauses;
}

std::string width_clause(const RowResult& base, const Figures& before, const RowResult& own,
                         const Figures& after) {
  if (base.parameters != own.parameters) return "";
  const int from = bytes_a_parameter(base, before), to = bytes_a_parameter(own, after);
  if (from == 0 || to == 0 || from == to) return "";
  return fmt::format("; a weight takes {} byte{} instead of {}", to, to == 1 ? "" : "s", from);
}

std::string host_clause(const Figures& before, const Figures& after) {
  const auto least = static_cast<int64_t>(kWorthSaying * static_cast<double>(after.peak_allocated));
  if (std::abs(after.peak_host - before.peak_host) <= std::max<int64_t>(least, 0)) return "";
  if (before.peak_host == 0)
    return fmt::format("; host memory takes another {}", memory_text(after.peak_host));
  return fmt::format("; in host memory {}", memory_pair(before.peak_host, after.peak_host));
}

}  // namespace snug::lab
