// SPDX-License-Identifier: Apache-2.0
#include "lab/run/lab_run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace snug::lab {
namespace {

// Every place of the edge, from every start.
TEST(FindEdge, FindsItWithoutTryingAnythingTwice) {
  for (int64_t first : {0, 1, 8})
    for (int64_t last = first; last < first + 20; ++last)
      for (int64_t largest = first - 1; largest <= last; ++largest)
        for (int64_t start = first; start <= last; ++start) {
          std::set<int64_t> tried;
          const Edge edge = find_edge(first, last, start, 1, [&](int64_t value) {
            EXPECT_TRUE(tried.insert(value).second) << value;
            EXPECT_GE(value, first);
            EXPECT_LE(value, last);
            return value <= largest;
          });
          ASSERT_TRUE(edge.is_found);
          EXPECT_EQ(edge.fits.has_value(), largest >= first);
          EXPECT_EQ(edge.too_large.has_value(), largest < last);
          if (edge.fits) {
            EXPECT_EQ(*edge.fits, largest);
          }
          if (edge.too_large) {
            EXPECT_EQ(*edge.too_large, largest + 1);
          }
        }
}

TEST(FindEdge, TriesFewOfMany) {
  int tries = 0;
  const Edge edge = find_edge(1, 1 << 20, 1, 1, [&](int64_t value) {
    ++tries;
    return value <= 700'001;
  });
  EXPECT_EQ(edge.fits, 700'001);
  EXPECT_LE(tries, 2 * 20 + 2);
  tries = 0;
  // A guess that is right takes the edge's two sides.
  find_edge(1, 1 << 20, 700'001, 1, [&](int64_t value) {
    ++tries;
    return value <= 700'001;
  });
  EXPECT_EQ(tries, 2);
}

TEST(FindEdge, DoublesFromTheSmallest) {
  std::vector<int64_t> tried;
  find_edge(8, 1000, 8, 8, [&](int64_t value) {
    tried.push_back(value);
    return value < 100;
  });
  EXPECT_EQ((std::vector<int64_t>{tried.begin(), tried.begin() + 5}),
            (std::vector<int64_t>{8, 16, 32, 64, 128}));
}

TEST(FindEdge, GivesUpWithoutAnAnswer) {
  const Edge edge = find_edge(1, 100, 1, 1, [](int64_t value) -> std::optional<bool> {
    if (value == 4) return std::nullopt;
    return true;
  });
  EXPECT_FALSE(edge.is_found);
  EXPECT_EQ(edge.fits, 2);
}

}  // namespace
}  // namespace snug::lab
