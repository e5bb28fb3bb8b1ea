// Words and scores of captions against pycocoevalcap's (tests/oracles/caption_scores.py).
// SPDX-License-Identifier: Apache-2.0
#include "use/scores/caption_scores.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "use/scores/caption_words.h"

namespace snug::scores {
namespace {

const nlohmann::json& expected() {
  static const nlohmann::json kExpected = nlohmann::json::parse(
      read_file(std::filesystem::path(SNUG_SOURCE_DIR) / "tests/data/scores/scores.json"));
  return kExpected;
}

Words split(const std::string& text) {
  Words words;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

TEST(CaptionWords, AreThoseOfTheTreebanksTokenizer) {
  for (const auto& pair : expected()["words"])
    EXPECT_EQ(fmt::format("{}", fmt::join(caption_words(pair[0].get<std::string>()), " ")),
              pair[1].get<std::string>())
        << pair[0];
}

TEST(CaptionWords, TakesAnyText) {
  EXPECT_EQ(caption_words("\xff 🍇 A grape\xc3"), (Words{"�", "a", "grape", "�"}));
  EXPECT_TRUE(caption_words(" \t\n .,;:!-… 🍎").empty());
  EXPECT_EQ(caption_words("YES!no"), (Words{"yes", "no"}));
}

TEST(CaptionScores, AreThoseOfCocosProgram) {
  for (const auto& example : expected()["cases"]) {
    std::vector<ScoredCaption> captions;
    for (const auto& row : example["captions"]) {
      ScoredCaption scored{.caption = split(row[0].get<std::string>()), .references = {}};
      for (const auto& reference : row[1])
        scored.references.push_back(split(reference.get<std::string>()));
      captions.push_back(std::move(scored));
    }
    const CaptionScores scores = caption_scores(captions);
    const auto where = fmt::format("{} captions", captions.size());
    for (size_t n = 0; n < 4; ++n)
      EXPECT_NEAR(scores.bleu[n], example["bleu"][n].get<double>(), 1e-9)
          << where << ", BLEU " << n;
    EXPECT_NEAR(scores.rouge_l, example["rouge_l"].get<double>(), 1e-9) << where;
    EXPECT_NEAR(scores.cider, example["cider"].get<double>(), 1e-9) << where;
  }
}

TEST(CaptionScores, NothingScoresNothingAndOneselfAll) {
  EXPECT_EQ(caption_scores({}).cider, 0);
  const std::vector<ScoredCaption> same = {
      {split("a red dog on the street"), {split("a red dog on the street")}},
      {split("two cats sleep in a bowl"), {split("two cats sleep in a bowl")}}};
  const CaptionScores scores = caption_scores(same);
  EXPECT_NEAR(scores.bleu[3], 1, 1e-6);
  EXPECT_NEAR(scores.rouge_l, 1, 1e-12);
  EXPECT_NEAR(scores.cider, 10, 1e-9);
  const std::vector<ScoredCaption> none = {{split("a"), {}}};
  EXPECT_THROW(caption_scores(none), InternalError);
}

}  // namespace
}  // namespace snug::scores
