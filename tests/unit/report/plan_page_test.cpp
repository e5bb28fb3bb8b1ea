// SPDX-License-Identifier: Apache-2.0
#include "report/run_page.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "report/tables.h"

namespace snug::report {
namespace {

PlanPage page_with_peak(int64_t bytes) {
  return {.title = "Plan: <a model>",
          .lines = {"Plan     peak 1 & more"},
          .categories = {"parameters", "activations"},
          .moments = {{"block 0, forward", "forward", {bytes / 2, bytes / 8}},
                      {"block 1, forward", "forward", {bytes / 2, bytes / 4}},
                      {"block 1, backward", "backward", {bytes / 2, bytes / 2}},
                      {"outside any unit, step", "step", {bytes / 2, 0}}},
          .limit_bytes = bytes,
          .fit = {},
          .beside = ""};
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(PlanPage, TheAxisHasRoundNumbersOfOneUnit) {
  const std::string gib = plan_html(page_with_peak(47 * kGiB));
  EXPECT_NE(gib.find(">10 GiB<"), std::string::npos);
  EXPECT_NE(gib.find(">40 GiB<"), std::string::npos);
  EXPECT_EQ(gib.find(">50 GiB<"), std::string::npos) << "beyond the chart";
  EXPECT_NE(plan_html(page_with_peak(900 * kMiB)).find(">200 MiB<"), std::string::npos);
}

TEST(PlanPage, PhasesAreMarkedWhereTheyChange) {
  const std::string html = plan_html(page_with_peak(47 * kGiB));
  EXPECT_EQ(count(html, ">forward</b>"), 1U);
  EXPECT_EQ(count(html, ">backward</b>"), 1U);
  EXPECT_EQ(count(html, ">step</b>"), 1U);
}

TEST(PlanPage, TheLegendHasWhatIsThere) {
  PlanPage page = page_with_peak(kGiB);
  for (PlanMoment& moment : page.moments) moment.by_category[1] = 0;
  const std::string html = plan_html(page);
  EXPECT_NE(html.find("</i>parameters"), std::string::npos);
  EXPECT_EQ(html.find("</i>activations"), std::string::npos);
}

// A row's options may be long: they wrap in a cell of a table, which a line of text would not.
TEST(PlanPage, WhatFitsIsATableThatWraps) {
  PlanPage page = page_with_peak(kGiB);
  Table table({{"reserved"}, {"options", Align::Left}});
  table.add_row({"3 GiB", "--a <b>"});
  page.fit = {.above = "Fit: & so on", .table = table.html(), .below = "train:\n  x: 1"};
  const std::string html = plan_html(page);
  EXPECT_NE(html.find("<td>3 GiB</td><td>--a &#60;b&#62;</td>"), std::string::npos) << html;
  EXPECT_NE(html.find("Fit: &#38; so on"), std::string::npos);
  EXPECT_NE(html.find(".fit td:last-child{white-space:normal"), std::string::npos);
}

TEST(PlanPage, TextIsEscaped) {
  const std::string html = plan_html(page_with_peak(kGiB));
  EXPECT_NE(html.find("a model"), std::string::npos);
  EXPECT_EQ(html.find("<a model>"), std::string::npos);
  EXPECT_EQ(html.find("1 & more"), std::string::npos);
}

TEST(Sparkline, IsAsWideAsAskedAndReachesTheTop) {
  EXPECT_EQ(sparkline({0, 4, 8}, 3), "▁▅█");
  EXPECT_EQ(sparkline({1, 1, 8, 1, 1, 1}, 2), "█▂") << "a column shows its highest";
  EXPECT_EQ(sparkline({}, 5), "");
}

}  // namespace
}  // namespace snug::report
