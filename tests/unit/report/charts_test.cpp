// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <regex>

#include "report/chart_axis.h"
#include "report/scatter_chart.h"
#include "report/svg_chart.h"
#include "report/timeline_chart.h"

namespace snug::report {
namespace {

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(Axis, LogarithmicTicksLieWithin) {
  Axis axis{.low = 0.3, .high = 70, .from = 0, .to = 100, .logarithmic = true};
  const std::vector<double> values = ticks(axis, 9);
  EXPECT_TRUE(std::is_sorted(values.begin(), values.end()));
  EXPECT_GE(values.front(), 0.3);
  EXPECT_LE(values.back(), 70);
  EXPECT_NE(std::find(values.begin(), values.end(), 10.0), values.end());
  EXPECT_NEAR(axis.pixel(std::sqrt(0.3 * 70)), 50, 1e-9);
}

TEST(Thinned, KeepsThePeakAndThePhasesApart) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<PlanMoment> moments;
    int64_t most = 0;
    for (const char* phase : {"setup", "forward", "backward", "step"})
      for (size_t i = 0, n = 1 + random() % 400; i < n; ++i) {
        moments.push_back({"u", phase, {static_cast<int64_t>(random() % 100000), 5}});
        most = std::max(most, total(moments.back()));
      }
    const std::vector<PlanMoment> few = thinned(moments, 60);
    EXPECT_LE(few.size(), 60U + 4);
    int64_t kept = 0;
    std::vector<std::string> phases;
    for (const PlanMoment& moment : few) {
      kept = std::max(kept, total(moment));
      if (phases.empty() || phases.back() != moment.phase) phases.push_back(moment.phase);
    }
    EXPECT_EQ(kept, most);
    EXPECT_EQ(phases, (std::vector<std::string>{"setup", "forward", "backward", "step"}));
  }
}

TEST(Timeline, HasABandForEachCategoryThatIsThere) {
  TimelineChart chart;
  chart.categories = {"a", "b", "c"};
  chart.moments = {{"<u>", "forward", {1000, 0, 500}}, {"v", "forward", {1000, 0, 700}}};
  const std::string svg = timeline_chart(chart);
  EXPECT_EQ(count(svg, "<path fill="), 2U);
  EXPECT_EQ(count(svg, "class=\"hit\""), 2U);
  EXPECT_EQ(svg.find("<u>"), std::string::npos);
}

TEST(Scatter, NamesNeverCoverEachOther) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> anywhere(0.1, 100);
  for (int round = 0; round < 20; ++round) {
    ScatterChart chart;
    chart.logarithmic_x = round % 2 == 0;
    chart.limit = 90;
    for (int i = 0; i < 40; ++i)
      chart.points.push_back({"row-" + std::to_string(i), "hint", "#r", anywhere(random),
                              anywhere(random), "c0", i % 7 == 0});
    const std::string svg = scatter_chart(chart);
    EXPECT_EQ(count(svg, "<circle") + count(svg, "class=\"cross\""), 40U);
    struct Box {
      double left, right, base;
    };
    std::vector<Box> boxes;
    const std::regex name(
        "class=\"halo\" x=\"([0-9.]+)\" y=\"([0-9.]+)\" text-anchor=\"(\\w+)\">([^<]*)<");
    for (auto it = std::sregex_iterator(svg.begin(), svg.end(), name); it != std::sregex_iterator();
         ++it) {
      const double x = std::stod((*it)[1]), width = 6.5 * static_cast<double>((*it)[4].length());
      const std::string anchor = (*it)[3];
      const double left = anchor == "start" ? x : anchor == "end" ? x - width : x - width / 2;
      boxes.push_back({left, left + width, std::stod((*it)[2])});
    }
    EXPECT_GT(boxes.size(), 20U);
    for (size_t a = 0; a < boxes.size(); ++a)
      for (size_t b = 0; b < a; ++b)
        EXPECT_TRUE(boxes[a].right <= boxes[b].left || boxes[b].right <= boxes[a].left ||
                    std::abs(boxes[a].base - boxes[b].base) >= 13.5);
  }
}

TEST(Scatter, NothingFiniteIsNoChart) {
  ScatterChart chart;
  EXPECT_EQ(scatter_chart(chart), "");
  chart.points.push_back({"a", "", "", std::nan(""), 1, "c0", false});
  EXPECT_EQ(scatter_chart(chart), "");
}

TEST(LineChart, RingsMarkAndLimitAreDrawn) {
  LineChart chart;
  chart.title = "t";
  chart.x_label = "<batch>";
  chart.limit = 50;
  chart.mark = 4;
  chart.mark_name = "best";
  chart.logarithmic_x = true;
  chart.x_ticks = {1, 2, 4, 8};
  chart.has_style = false;
  chart.series.push_back({"p", "c1", Series::Look::Rings, {{1, 10}, {2, 20}, {4, 30}, {8, 40}}});
  const std::string svg = line_chart(chart);
  EXPECT_EQ(count(svg, "class=\"ring\""), 4U);
  EXPECT_EQ(count(svg, "class=\"limit\""), 1U);
  EXPECT_EQ(count(svg, ">best</text>"), 1U);
  EXPECT_EQ(svg.find("<style>"), std::string::npos);
  EXPECT_EQ(svg.find("<batch>"), std::string::npos);
  // Doubling is one and the same step to the right.
  std::vector<double> at;
  const std::regex ring("cx=\"([0-9.]+)\"");
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), ring); it != std::sregex_iterator();
       ++it)
    at.push_back(std::stod((*it)[1]));
  ASSERT_EQ(at.size(), 4U);
  EXPECT_NEAR(at[1] - at[0], at[3] - at[2], 0.2);
}

}  // namespace
}  // namespace snug::report
