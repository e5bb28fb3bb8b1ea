// What one row's section draws: memory over a step, and the loss.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "lab/page/page.h"
#include "lab/report/figures.h"
#include "report/charts/charts.h"

namespace snug::lab {

std::string memory_over_a_step(const RowView& view, size_t most_moments) {
  if (!view.result->predicted || view.result->predicted->timeline.empty()) return "";
  const Figures& plan = *view.result->predicted;
  report::TimelineChart chart;
  chart.categories = categories_of({&plan});
  // A moment may have what the peak has not.
  for (const Moment& moment : plan.timeline)
    for (const auto& [category, bytes] : moment.by_category)
      if (bytes > 0 && std::find(chart.categories.begin(), chart.categories.end(), category) ==
                           chart.categories.end())
        chart.categories.push_back(category);
  std::vector<report::PlanMoment> moments;
  const report::PlanMoment* highest = nullptr;
  for (const Moment& moment : plan.timeline) {
    report::PlanMoment one{moment.unit + ", " + moment.phase, moment.phase, {}};
    for (const std::string& category : chart.categories) {
      const auto found = moment.by_category.find(category);
      one.by_category.push_back(found == moment.by_category.end() ? 0 : found->second);
    }
    moments.push_back(std::move(one));
  }
  for (const report::PlanMoment& moment : moments)
    if (highest == nullptr || total(moment) > total(*highest)) highest = &moment;
  const std::string peak =
      fmt::format("highest in {}: {}", highest->label, memory_text(total(*highest)));
  chart.name = "Memory over one step by category, as planned; " + peak;
  chart.limit_name = "there is";
  chart.limit_bytes = view.result->limit_bytes;
  chart.moments = report::thinned(moments, most_moments);
  std::string key = "<ul class=\"key\">";
  for (size_t c = 0; c < chart.categories.size(); ++c)
    if (std::any_of(moments.begin(), moments.end(), [&](const report::PlanMoment& moment) {
          return is_visible(moment.by_category[c], static_cast<double>(total(*highest)));
        }))
      key += key_entry(colour_of(c), category_words(chart.categories[c]));
  std::string aside = "as planned, " + peak;
  if (is_far_above(static_cast<double>(chart.limit_bytes), static_cast<double>(total(*highest))))
    aside += "; available: " + memory_text(chart.limit_bytes);
  return figure("Memory over one step", aside, timeline_chart(chart) + key + "</ul>");
}

std::string loss_curve(const RowView& view) {
  if (view.result->losses.size() < 2) return "";
  report::LineChart chart;
  chart.title = "Loss";
  chart.unit = "per loss token";
  chart.has_style = false;
  chart.width = 480;
  std::vector<std::pair<double, double>> points;
  for (const LossPoint& point : view.result->losses)
    points.emplace_back(static_cast<double>(point.step), point.loss);
  const std::string last =
      fmt::format("from {:.4g} to {:.4g}", points.front().second, points.back().second);
  const bool is_short = points.size() <= 20;
  chart.series.push_back({"", "c0",
                          is_short ? report::Series::Look::Dots : report::Series::Look::Line,
                          std::move(points)});
  const std::string wide = report::line_chart(chart);
  if (wide.empty()) return "";
  chart.width = kPhoneWidth;
  return figure("Training loss", last,
                "<div class=\"narrow\">" + either(wide, report::line_chart(chart)) + "</div>");
}

}  // namespace snug::lab
