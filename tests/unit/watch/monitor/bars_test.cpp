// SPDX-License-Identifier: Apache-2.0
#include "watch/monitor/painter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "report/text_width.h"

namespace snug::monitor {
namespace {

using report::display_width;

constexpr Style kPlain{.unicode = false, .colours = false};
constexpr Style kColoured{.unicode = true, .colours = true};

TEST(Bars, GaugeFillsItsColumns) {
  EXPECT_EQ(gauge(0, 4, "", kPlain), "....");
  EXPECT_EQ(gauge(0.5, 4, "", kPlain), "##..");
  EXPECT_EQ(gauge(1, 4, "", kPlain), "####");
  EXPECT_EQ(gauge(7, 4, "", kPlain), "####");
  EXPECT_EQ(gauge(-1, 4, "", kPlain), "....");
  EXPECT_EQ(gauge(std::nan(""), 4, "", kPlain), "....");
  EXPECT_EQ(display_width(gauge(0.3, 17, "32", kColoured)), 17U);
  EXPECT_EQ(gauge(0.5, 0, "32", kColoured), "");
}

TEST(Bars, PartsStandOneAfterAnother) {
  const std::vector<Part> parts{{'P', "34", 30}, {'O', "35", 60}, {'W', "36", 0}, {'D', "37", 10}};
  EXPECT_EQ(stacked_bar(parts, 100, 0, 10, kPlain), "PPPOOOOOOD");
  EXPECT_EQ(stacked_bar(parts, 200, 0, 20, kPlain), "PPPOOOOOOD..........");
}

TEST(Bars, TheMarkIsWhereItsBytesEnd) {
  const std::vector<Part> parts{{'P', "", 50}};
  EXPECT_EQ(stacked_bar(parts, 100, 80, 10, kPlain), "PPPPP..|..");
  EXPECT_EQ(stacked_bar(parts, 100, 100, 10, kPlain), "PPPPP....|");
  EXPECT_EQ(stacked_bar(parts, 100, 300, 10, kPlain), "PPPPP....|");
  EXPECT_EQ(stacked_bar(parts, 100, 1, 10, kPlain), "|PPPP.....");
}

// What is there is seen, and never more than the columns.
TEST(Bars, SmallPartsGetAColumn) {
  const std::vector<Part> parts{{'D', "", 1}, {'P', "", 999'998}, {'W', "", 1}};
  const std::string bar = stacked_bar(parts, 1'000'000, 0, 10, kPlain);
  EXPECT_EQ(bar.size(), 10U);
  EXPECT_EQ(bar.front(), 'D');
  const std::vector<Part> tail{{'P', "", 500'000}, {'D', "", 1}};
  EXPECT_EQ(stacked_bar(tail, 1'000'000, 0, 10, kPlain), "PPPPPD....");
  for (size_t columns = 0; columns < 40; ++columns)
    EXPECT_EQ(display_width(stacked_bar(parts, 1'000'000, 7, columns, kColoured)), columns);
}

TEST(Bars, NothingToScaleByIsBlank) { EXPECT_EQ(stacked_bar({}, 0, 0, 5, kPlain), "     "); }

TEST(Bars, SparklineFromLowToHigh) {
  EXPECT_EQ(sparkline({0, 1, 2, 3, 4, 5, 6, 7}, 8, kColoured), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(sparkline({7, 0}, 2, kPlain), "#_");
  EXPECT_EQ(sparkline({1, 2}, 4, kPlain), "_#  ") << "no more columns than values";
  EXPECT_EQ(display_width(sparkline(std::vector<double>(200, 3.5), 60, kColoured)), 60U);
  EXPECT_EQ(sparkline({}, 3, kPlain), "   ");
}

TEST(Bars, SparklineBeginsAndEndsWithItsValues) {
  std::vector<double> values(200, 5);
  values.front() = 9;
  values.back() = 1;
  const std::string line = sparkline(values, 11, kPlain);
  EXPECT_EQ(line.front(), '#');
  EXPECT_EQ(line.back(), '_');
}

TEST(Bars, WhatIsNoNumberIsLeftBlank) {
  EXPECT_EQ(sparkline({0, std::nan(""), std::numeric_limits<double>::infinity(), 7}, 4, kPlain),
            "_  #");
}

TEST(Bars, PaddedToTheColumns) {
  EXPECT_EQ(padded("ab", 4), "ab  ");
  EXPECT_EQ(padded("abcdef", 4), "abcd");
  EXPECT_EQ(padded("日本", 3), "日 ");
}

}  // namespace
}  // namespace snug::monitor
