// SPDX-License-Identifier: Apache-2.0
#include "experiment/peak.h"

#include <algorithm>
#include <cmath>

namespace snug::experiment {
namespace {

constexpr double kSamePeak = 0.02;  // a measured peak is the planned one up to this share

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

}  // namespace snug::experiment
