// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <regex>

#include "report/charts/charts.h"

namespace snug::report {
namespace charts_test {

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
  const std::string html = timeline_chart(chart);
  EXPECT_EQ(count(html, "<path fill="), 2U);
  EXPECT_EQ(count(html, "class=\"hit\""), 2U);
  EXPECT_EQ(html.find("<u>"), std::string::npos);
}

// Letters would shrink with the drawing: they stand beside it, at the same heights.
TEST(Timeline, WordsAreNotInTheDrawing) {
  TimelineChart chart;
  chart.categories = {"a"};
  chart.moments = {{"u", "forward", {3 << 20}}, {"v", "backward", {4 << 20}}};
  chart.limit_bytes = 4 << 20;
  const std::string html = timeline_chart(chart);
  const size_t drawing = html.find("<svg"), end = html.find("</svg>");
  EXPECT_EQ(html.substr(drawing, end - drawing).find("<text"), std::string::npos);
  EXPECT_NE(html.find("preserveAspectRatio=\"none\""), std::string::npos);
  for (const char* word : {">forward<", ">backward<", "the device has 4.00 MiB<", ">2 MiB<"})
    EXPECT_EQ(count(html, word), 1U) << word;
  // A line at y of 300 has its name at (1 - y / 300) of the height.
  std::smatch line, name;
  ASSERT_TRUE(std::regex_search(html, line, std::regex("class=\"limit\"[^>]* y1=\"([0-9.]+)\"")));
  ASSERT_TRUE(std::regex_search(
      html, name, std::regex("class=\"limit-name[^\"]*\" style=\"bottom:([0-9.]+)%\"")));
  EXPECT_NEAR(std::stod(name[1]), 100 * (1 - std::stod(line[1]) / 300), 0.1);
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

// Drawn for a phone: names in rows of their own, and none over another or beyond the edge.
TEST(LineChart, ANarrowOneHasRoomForItsNames) {
  LineChart chart;
  chart.title = "Peak memory";
  chart.width = 320;
  chart.x_ticks = {100, 101, 102, 104, 141, 142};
  for (const char* name : {"published", "LitGPT, counted", "snug, measured here"})
    chart.series.push_back({name, "c0", Series::Look::Dots, {{100, 1}, {142, 2}}});
  const std::string narrow = line_chart(chart);
  const std::regex text("<text[^>]* x=\"([0-9.]+)\" y=\"([0-9.]+)\"[^>]*>([^<]*)<");
  std::vector<std::array<double, 3>> ticks;  // left, right, y
  double first_row = 0, last_row = 0;
  for (auto it = std::sregex_iterator(narrow.begin(), narrow.end(), text);
       it != std::sregex_iterator(); ++it) {
    const double x = std::stod((*it)[1]), y = std::stod((*it)[2]);
    const std::string word = (*it)[3];
    if (word == "published") first_row = y;
    if (word == "snug, measured here") {
      last_row = y;
      EXPECT_LE(x + 7 * static_cast<double>(word.size()), chart.width);
    }
    if (word.size() == 3 && word[0] == '1' && word[1] != '.') ticks.push_back({x - 10, x + 10, y});
  }
  EXPECT_GT(first_row, 40) << "below title and unit";
  EXPECT_GT(last_row, first_row);
  ASSERT_GE(ticks.size(), 2U);
  EXPECT_LT(ticks.size(), chart.x_ticks.size());
  for (size_t i = 1; i < ticks.size(); ++i) EXPECT_GE(ticks[i][0], ticks[i - 1][1]);
  chart.width = 900;
  EXPECT_LT(line_chart(chart).find("published"), line_chart(chart).find("class=\"grid\""));
  EXPECT_EQ(count(line_chart(chart), "y=\"16\">"), 4U) << "title and names in one line";
}

TEST(LineChart, RingsMarkAndLimitAreDrawn) {
  LineChart chart;
  chart.title = "t";
  chart.x_label = "<batch>";
  chart.limit = 50;
  chart.marks = {{4, "best"}, {3.9, "near it"}};
  chart.logarithmic_x = true;
  chart.x_ticks = {1, 2, 4, 8};
  chart.has_style = false;
  chart.series.push_back({"p", "c1", Series::Look::Rings, {{1, 10}, {2, 20}, {4, 30}, {8, 40}}});
  const std::string svg = line_chart(chart);
  EXPECT_EQ(count(svg, "class=\"ring\""), 4U);
  EXPECT_EQ(count(svg, "class=\"limit\""), 1U);
  std::smatch best, near_it;
  ASSERT_TRUE(std::regex_search(svg, best, std::regex("y=\"([0-9.]+)\"[^>]*>best</text>")));
  ASSERT_TRUE(std::regex_search(svg, near_it, std::regex("y=\"([0-9.]+)\"[^>]*>near it</text>")));
  EXPECT_GE(std::abs(std::stod(best[1]) - std::stod(near_it[1])), 14) << "one name over another";
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

}  // namespace charts_test
}  // namespace snug::report
