// SPDX-License-Identifier: Apache-2.0
#include "data/survey.h"

#include "data_fixtures.h"

namespace snug::data {
namespace {

// Five rows, of which one is there three times, and a validation file with one of them.
TEST(Survey, CountsWhatIsThereTwiceAndWhatIsLearnt) {
  const Folder folder;
  const auto row = [](const std::string& question) {
    return R"({"instruction": ")" + question + R"(", "output": "1234"})" + "\n";
  };
  DatasetOptions options{.prompt_style = "plain", .mask_prompt = true};
  options.json_path =
      folder.write("train.jsonl", row("a") + row("bb") + row("a") + row("ccc") + row("a"));
  options.val_path = folder.write("val.jsonl", row("bb") + row("dddd"));
  const Dataset dataset = load_dataset(options, byte_encoder(false), nullptr);
  const DataSurvey found = survey(dataset);
  EXPECT_EQ(found.training, 5);
  EXPECT_EQ(found.held_out, 2);
  EXPECT_EQ(found.duplicates, 3) << "two of a, and bb in both parts";
  EXPECT_EQ(found.held_out_in_training, 1);
  const auto rows = [&](const auto& pairs) {
    std::vector<std::pair<int64_t, int64_t>> numbers;
    for (const auto& [one, other] : pairs)
      numbers.emplace_back(row_number(dataset, one), row_number(dataset, other));
    return numbers;
  };
  using Pairs = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(rows(found.in_both), (Pairs{{1, 2}})) << "held out and trained on";
  EXPECT_EQ(found.repeated.size(), 3U);
  // Row 1 of those held out comes before row 2 of the others.
  EXPECT_EQ(rows(found.repeated), (Pairs{{1, 2}, {1, 3}, {1, 5}}));
  EXPECT_EQ(found.nearly_empty, 0);
  EXPECT_EQ(found.learnt_tokens, 7 * 5) << "each answer and its end";
  EXPECT_EQ(found.shortest, 6);
  EXPECT_EQ(found.longest, 9);
  int64_t binned = 0;
  for (const LengthBin& bin : found.lengths) binned += bin.samples;
  EXPECT_EQ(binned, 7);
  EXPECT_EQ(found.lengths.back().to, 9);
  EXPECT_EQ(dataset.row_counts.questions, 7);
}

TEST(Survey, NamesAnswersWithoutWords) {
  const Folder folder;
  DatasetOptions options{.prompt_style = "plain", .mask_prompt = true, .warns = false};
  options.json_path = folder.write("rows.jsonl", R"({"instruction": "a", "output": "word"}
{"instruction": "b", "output": ""}
{"instruction": "c", "output": "w"}
)");
  const Dataset dataset = load_dataset(options, byte_encoder(false), nullptr);
  const DataSurvey found = survey(dataset);
  EXPECT_EQ(found.nearly_empty, 1) << "only its end is learnt";
  ASSERT_EQ(found.short_of_words.size(), 1U);
  EXPECT_EQ(row_number(dataset, found.short_of_words[0]), 2);
}

TEST(Survey, KnowsTheRowOfEachSampleAfterTheShuffle) {
  const Folder folder;
  std::string rows;
  for (int i = 1; i <= 20; ++i)
    rows += R"({"instruction": ")" + std::string(static_cast<size_t>(i), 'x') +
            R"(", "output": "y"})" + "\n";
  DatasetOptions options{.val_split_fraction = 0.25, .prompt_style = "plain"};
  options.json_path = folder.write("rows.jsonl", rows);
  const Dataset dataset = load_dataset(options, byte_encoder(false), nullptr);
  const std::vector<SampleAt> samples = samples_by_row(dataset);
  ASSERT_EQ(samples.size(), 20U);
  for (size_t i = 0; i < samples.size(); ++i) {
    const SampleStore& store = samples[i].held_out ? dataset.validation : dataset.train;
    EXPECT_EQ(row_number(dataset, samples[i]), static_cast<int64_t>(i) + 1);
    EXPECT_EQ(store.length(samples[i].index), static_cast<int64_t>(i) + 3);
  }
  options.max_samples = 6;
  const Dataset some = load_dataset(options, byte_encoder(false), nullptr);
  for (const SampleAt at : samples_by_row(some)) {
    const SampleStore& store = at.held_out ? some.validation : some.train;
    EXPECT_EQ(store.length(at.index), row_number(some, at) + 2);
  }
}

}  // namespace
}  // namespace snug::data
