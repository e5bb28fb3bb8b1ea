// Which packages are asked about, and that the same subjects give the same questions everywhere.
// SPDX-License-Identifier: Apache-2.0
#include "use/demo/questions.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "support/programs.h"
#include "support/temp_folder.h"

namespace snug::demo {
namespace {

constexpr const char* kIndex = R"(Package: nudoku
Version: 2.1
Description: ncurses based sudoku games
Description-md5: 0
Section: games

Package: tree
Description-en: displays an indented directory tree, in color

Package: tree
Description: displays directory trees, newer

Package: libtree1
Description: displays directory trees, as a library

Package: nudoku-data
Description: ncurses based sudoku games, data files

Package: aspell-l10n-xy
Description: spelling words of a country far away

Package: old
Description: transitional Dummy package for new

Package: perlish-perl
Description: something about Perl that is long enough

Package: kern
Description: a driver for a device (kernel MODULE)

Package: short
Description: too short a text

Package: long
Description: this description goes on and on until it has many more than eighty characters in it

Package: gruesse
Description: Grüße an die Königin, zwanzig.  

Package: without-description
Version: 1
)";

TEST(Packages, AreThoseThatStandForThemselves) {
  const std::map<std::string, std::string> expected = {
      {"gruesse", "Grüße an die Königin, zwanzig."},
      {"nudoku", "ncurses based sudoku games"},
      {"tree", "displays directory trees, newer"}};
  EXPECT_EQ(described_packages(kIndex), expected);
}

TEST(Packages, AnythingElseIsNoIndex) {
  for (const char* text : {"", "\n\n\n", "Package:", "Package: a\nDescription", "<html>\n\n</html>",
                           "Package: x\nDescription: twenty characters \xff and more\n"})
    EXPECT_TRUE(described_packages(text).empty()) << text;
}

TEST(Packages, TheIndexIsWhatAptCacheSays) {
  const test::TempFolder bin;
  const test::Environment path("PATH", bin.path().string() + ":/usr/bin:/bin");
  test::write_script(bin / "apt-cache", "test \"$*\" = dumpavail && echo 'Package: one'");
  EXPECT_EQ(package_index(), "Package: one\n");
  test::write_script(bin / "apt-cache", "echo none >&2; exit 100");
  EXPECT_EQ(package_index(), "");
}

// As an independent implementation (Python's hashlib) chose them.
TEST(Questions, OfPackagesFollowFromTheirNames) {
  const std::vector<Question> questions = package_questions(described_packages(kIndex), 10);
  ASSERT_EQ(questions.size(), 3U);
  EXPECT_EQ(questions[0].question,
            "Name the Debian package that provides: ncurses based sudoku games.");
  EXPECT_EQ(questions[0].answer, "nudoku");
  EXPECT_EQ(questions[1].question, "What is the Debian package gruesse?");
  EXPECT_EQ(questions[1].answer, "Grüße an die Königin, zwanzig.");
  EXPECT_EQ(questions[2].question, "Describe the Debian package tree in one line.");
  EXPECT_EQ(package_questions(described_packages(kIndex), 1).front().answer, "nudoku");
}

TEST(Questions, NumbersAreWrittenAsPeopleDo) {
  const std::map<int, const char*> words = {{1, "one"},
                                            {13, "thirteen"},
                                            {20, "twenty"},
                                            {48, "forty-eight"},
                                            {100, "one hundred"},
                                            {115, "one hundred fifteen"},
                                            {999, "nine hundred ninety-nine"},
                                            {1000, "one thousand"},
                                            {2030, "two thousand thirty"}};
  for (const auto& [number, text] : words) EXPECT_EQ(in_words(number), text);
  const std::map<int, const char*> roman = {{1, "I"},       {4, "IV"},         {9, "IX"},
                                            {48, "XLVIII"}, {1994, "MCMXCIV"}, {3999, "MMMCMXCIX"}};
  for (const auto& [number, text] : roman) EXPECT_EQ(in_roman(number), text);
}

TEST(Questions, OfNumbersAskAboutEachOnceAndInAllWays) {
  const std::vector<Question> questions = number_questions(400);
  ASSERT_EQ(questions.size(), 400U);
  std::set<std::string> different;
  std::map<std::string, int> ways;
  for (const Question& question : questions) {
    different.insert(question.question);
    const std::string& text = question.question;
    ++ways[text.starts_with("Which") ? "roman" : text.substr(text.rfind(' '))];
    EXPECT_FALSE(question.answer.empty());
  }
  EXPECT_EQ(different.size(), 400U);
  ASSERT_EQ(ways.size(), 4U);
  for (const auto& [way, count] : ways) EXPECT_NEAR(count, 100, 40) << way;
}

TEST(Questions, AreWrittenAsRowsOfWhichSomeAreHeldOut) {
  const test::TempFolder folder;
  write_questions({{"a?", "1"}, {"b \"?\"", "zwölf"}, {"c?", "3"}}, 1, folder.path());
  EXPECT_EQ(read_file(folder / "held_out.jsonl"),
            "{\"instruction\":\"a?\",\"input\":\"\",\"output\":\"1\"}\n");
  std::ifstream rows(folder / "train.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(rows, line));
  EXPECT_EQ(nlohmann::json::parse(line)["instruction"], "b \"?\"");
  EXPECT_EQ(nlohmann::json::parse(line)["output"], "zwölf");
  ASSERT_TRUE(std::getline(rows, line));
  EXPECT_FALSE(std::getline(rows, line));
}

// Those that are held out take none that are trained on, nor the other way round.
TEST(Questions, HaveWrongAnswersOfTheSameKind) {
  std::vector<Question> questions = number_questions(400);
  add_rejected(questions, 40);
  std::set<std::string> held_out;
  for (size_t i = 0; i < questions.size(); ++i) {
    const Question& question = questions[i];
    EXPECT_FALSE(question.rejected.empty()) << question.question;
    EXPECT_NE(question.rejected, question.answer);
    EXPECT_EQ(std::isdigit(question.rejected[0]) != 0, std::isdigit(question.answer[0]) != 0);
    if (i < 40) held_out.insert(question.answer);
  }
  for (size_t i = 0; i < 40; ++i) EXPECT_TRUE(held_out.contains(questions[i].rejected));
  const test::TempFolder folder;
  write_questions({{"a?", "1", 0, "2"}, {"b?", "2"}}, 1, folder.path());
  EXPECT_EQ(read_file(folder / "held_out.jsonl"),
            "{\"instruction\":\"a?\",\"input\":\"\",\"chosen\":\"1\",\"rejected\":\"2\"}\n");
}

TEST(Questions, AreNotWrittenOverOtherRows) {
  const test::TempFolder folder;
  const std::vector<Question> questions = {{"a?", "1"}, {"b?", "2"}};
  write_questions(questions, 1, folder.path());
  write_questions(questions, 1, folder.path());  // the same once more
  std::ofstream(folder / "train.jsonl") << "my own\n";
  try {
    write_questions({{"c?", "3"}, {"b?", "2"}}, 1, folder.path());
    ADD_FAILURE() << "written";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("give another --data_dir"), std::string::npos);
  }
  std::ofstream(folder / "held_out.jsonl") << "";
  EXPECT_THROW(write_questions(questions, 1, folder.path()), UserError);
  EXPECT_EQ(read_file(folder / "train.jsonl"), "my own\n");
  EXPECT_EQ(read_file(folder / "held_out.jsonl"), "") << "neither file is written";
  write_questions(questions, 1, folder.path(), /*own=*/true);
  EXPECT_NE(read_file(folder / "train.jsonl"), "my own\n");
}

}  // namespace
}  // namespace snug::demo
