// SPDX-License-Identifier: Apache-2.0
#include "report/text_width.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

namespace snug::report {
namespace {

TEST(TextWidth, CountsColumnsNotBytes) {
  EXPECT_EQ(display_width(""), 0U);
  EXPECT_EQ(display_width("loss"), 4U);
  EXPECT_EQ(display_width("grüße"), 5U);
  EXPECT_EQ(display_width("日本語"), 6U);
  EXPECT_EQ(display_width("한국"), 4U);
  EXPECT_EQ(display_width("🎉"), 2U);
  EXPECT_EQ(display_width("━━"), 2U);
  EXPECT_EQ(display_width("e\u0301"), 1U);            // combining accent
  EXPECT_EQ(display_width("\x1b[32mgo\x1b[0m"), 2U);  // colours
  EXPECT_EQ(display_width("a\xff\xe2\x82z"), 5U);     // bytes that are no character
}

TEST(TextWidth, CutsBetweenCharacters) {
  EXPECT_EQ(fit_columns("grüße", 3), "grü");
  EXPECT_EQ(fit_columns("日本語", 5), "日本");
  EXPECT_EQ(fit_columns("ab", 9), "ab");
  EXPECT_EQ(fit_columns("e\u0301x", 1), "e\u0301");
  EXPECT_EQ(fit_columns("abc", 0), "");
}

using Lines = std::vector<std::string>;

TEST(Wrapped, PartsAtBlanks) {
  EXPECT_EQ(wrapped("one two three", 80), Lines{"one two three"});
  EXPECT_EQ(wrapped("one two three", 7), (Lines{"one two", "three"}));
  EXPECT_EQ(wrapped("one two three", 6), (Lines{"one", "two", "three"}));
  EXPECT_EQ(wrapped("one two three", 0), Lines{"one two three"});
  EXPECT_EQ(wrapped("", 10), Lines{""});
}

TEST(Wrapped, PartsLongWordsAnywhereAndLettersNowhere) {
  EXPECT_EQ(wrapped("abcdefgh ij", 3), (Lines{"abc", "def", "gh", "ij"}));
  EXPECT_EQ(wrapped("äöü ß", 3), (Lines{"äöü", "ß"}));
}

TEST(Wrapped, LosesNothingAndEndsAtAnyWidth) {
  const std::string text =
      "a   wide 漢字 word, and  one-that-is-longer-than-any-line-of-them ends.";
  const auto letters = [](const std::string& some) {
    std::string kept;
    for (const char c : some)
      if (c != ' ') kept += c;
    return kept;
  };
  for (size_t columns = 1; columns < 90; ++columns) {
    std::string all;
    for (const std::string& line : wrapped(text, columns)) {
      all += line;
      EXPECT_LE(display_width(line), std::max<size_t>(columns, 2)) << line;
    }
    EXPECT_EQ(letters(all), letters(text)) << columns;
  }
}

TEST(Folded, GoesOnBelowFurtherToTheRight) {
  EXPECT_EQ(folded("  one two three four five\nx\n", 16), "  one two three\n      four five\nx\n");
  EXPECT_EQ(folded("[1/9]  name    words of it\n", 20), "[1/9]  name    words\n    of it\n")
      << "what aligns names stays";
  EXPECT_EQ(folded("abcdefghijklmnop q\n", 10), "abcdefghij\n    klmnop\n    q\n");
  EXPECT_EQ(folded("a line of words\n", 7), "a line of words\n") << "a terminal too narrow for it";
  EXPECT_EQ(folded("a line of words\n", 0), "a line of words\n");
  EXPECT_EQ(folded("\n\nx", 20), "\n\nx\n");
}

TEST(Folded, LosesNoWordAndKeepsToTheWidth) {
  const std::string text =
      "   [12/14] a-name   words, and one-longer-than-any-line-of-them, 漢字 ends";
  for (size_t columns = 10; columns < 100; ++columns) {
    std::string letters;
    std::istringstream lines(folded(text, columns));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(display_width(line), columns) << line;
      std::erase(line, ' ');
      letters += line;
    }
    std::string all = text;
    std::erase(all, ' ');
    EXPECT_EQ(letters, all) << columns;
  }
}

}  // namespace
}  // namespace snug::report
