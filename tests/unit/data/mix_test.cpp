// SPDX-License-Identifier: Apache-2.0
#include "data/mix.h"

#include "base/log.h"
#include "data/survey.h"
#include "data_fixtures.h"

namespace snug::data {
namespace {

std::string questions(int count, const std::string& answer) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += R"({"instruction":"q)" + std::to_string(i) + R"(","output":")" + answer + "\"}\n";
  return text;
}

std::string chats(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += R"({"messages":[{"role":"user","content":"u)" + std::to_string(i) +
            R"("},{"role":"assistant","content":"hello"}]})" + "\n";
  return text;
}

MixSource source_of(const std::string& name, const std::filesystem::path& path) {
  return {.name = name, .options = {.json_path = path, .warns = false}};
}

std::vector<MixSource> sources_with(std::vector<std::optional<double>> weights,
                                    std::vector<std::optional<double>> shares) {
  std::vector<MixSource> sources(weights.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    sources[i].weight = weights[i];
    sources[i].share = shares[i];
  }
  return sources;
}

std::vector<int64_t> epoch_of(const std::vector<MixSource>& sources,
                              const std::vector<int64_t>& counts) {
  return samples_per_epoch(sources, counts);
}

TEST(Mix, WeightsSayHowOftenAnEpochHasEachSample) {
  const auto none = std::optional<double>();
  EXPECT_EQ(epoch_of(sources_with({none, 2, 0.25}, {none, none, none}), {10, 20, 30}),
            (std::vector<int64_t>{10, 40, 8}));  // 7.5 is rounded
  EXPECT_EQ(epoch_of(sources_with({0.001}, {none}), {10}), (std::vector<int64_t>{1}));
}

TEST(Mix, SharesAreOfTheSamplesOfAnEpoch) {
  const auto none = std::optional<double>();
  EXPECT_EQ(epoch_of(sources_with({none, none}, {0.5, 0.5}), {90, 10}),
            (std::vector<int64_t>{50, 50}));
  EXPECT_EQ(epoch_of(sources_with({none, none, 3}, {0.4, none, none}), {60, 20, 20}),
            (std::vector<int64_t>{53, 20, 60}))
      << "beside a share weights keep their meaning: 80 are six tenths of 133";
  EXPECT_EQ(epoch_of(sources_with({none, none, none}, {0.333, 0.333, 0.333}), {3, 3, 3}),
            (std::vector<int64_t>{3, 3, 3}));
}

TEST(Mix, SharesThatAreNoWholeAreRefused) {
  const auto none = std::optional<double>();
  const auto refused = [&](std::vector<std::optional<double>> shares) {
    return message_of([&] {
      epoch_of(sources_with(std::vector<std::optional<double>>(shares.size()), shares), {5, 5});
    });
  };
  EXPECT_NE(refused({0.7, 0.5}).find("add up to 1.2"), std::string::npos);
  EXPECT_NE(refused({0.5, 0.3}).find("make it 1"), std::string::npos);
  EXPECT_NE(refused({1.0, none}).find("leaves nothing for the sources without"), std::string::npos);
}

TEST(Mix, HasTheSamplesOfEachSourceOneBehindTheOther) {
  const Folder folder;
  std::vector<MixSource> sources = {source_of("a", folder.write("a.jsonl", questions(6, "yes"))),
                                    source_of("b", folder.write("b.jsonl", chats(4)))};
  sources[0].options.val_split_fraction = 0.34;
  sources[1].weight = 1.5;
  const TextEncoder encoder = chat_encoder();
  const Dataset mixed = load_mix(sources, encoder, nullptr);
  const Dataset a = load_dataset(sources[0].options, encoder, nullptr);
  const Dataset b = load_dataset(sources[1].options, encoder, nullptr);
  ASSERT_EQ(mixed.train.count(), 4 + 2 * 4);
  for (int64_t i = 0; i < mixed.train.count(); ++i) {
    const Sample wanted = i < 4 ? a.train.sample(i) : b.train.sample((i - 4) % 4);
    EXPECT_EQ(mixed.train.sample(i).ids, wanted.ids) << i;
    EXPECT_EQ(mixed.train.sample(i).labels, wanted.labels) << i;
    EXPECT_EQ(mixed.train.raw_tokens(i), wanted.raw_tokens) << i;
  }
  EXPECT_EQ(mixed.train.total_tokens(), a.train.total_tokens() + 2 * b.train.total_tokens());
  EXPECT_EQ(mixed.train.longest(), std::max(a.train.longest(), b.train.longest()));
  EXPECT_EQ(mixed.validation.count(), 2);
  ASSERT_EQ(mixed.sources.size(), 2U);
  EXPECT_EQ(mixed.sources[1].copies, 2);
  EXPECT_EQ(mixed.sources[1].per_epoch, 6);
  EXPECT_EQ(mixed.sources[0].validation_end, 2);
  EXPECT_EQ(mixed.sources[1].validation_end, 2);
  EXPECT_EQ(mixed.sources[0].prompt_style, "alpaca");
  EXPECT_EQ(mixed.sources[1].prompt_style, "chat");
  EXPECT_EQ(mixed.prompt_style, "chat") << "that of most samples of an epoch";
  EXPECT_EQ(masks_prompts(mixed, std::nullopt), std::nullopt);
  EXPECT_EQ(mixed.row_counts.chats, 4);
  const std::vector<SampleRange> ranges = ranges_of(mixed);
  ASSERT_EQ(ranges.size(), 2U);
  EXPECT_EQ(ranges[1].end, 12);
  EXPECT_NEAR(tokens_of_epoch(mixed.train, ranges),
              static_cast<double>(a.train.total_tokens()) +
                  1.5 * static_cast<double>(b.train.total_tokens()),
              1e-9);
  EXPECT_EQ(row_number(mixed, {.held_out = false, .index = 4}), b.train_numbers[0]);
  EXPECT_EQ(source_of(mixed, {.held_out = false, .index = 4})->name, "b");
  EXPECT_EQ(source_of(mixed, {.held_out = true, .index = 1})->name, "a");
}

TEST(Mix, TextsInBlocksStandBesideRows) {
  const Folder folder;
  const auto text = folder.write("book.txt", std::string(100, 'x'));
  std::vector<MixSource> sources = {source_of("a", folder.write("a.jsonl", questions(3, "yes"))),
                                    source_of("book.txt", "")};
  sources[1].options = {
      .name = "TextFiles", .val_split_fraction = 0.0, .path = text, .warns = false};
  for (MixSource& source : sources) source.options.max_seq_length = 40;
  const TextEncoder encoder = byte_encoder(false);
  const Dataset mixed = load_mix(sources, encoder, nullptr);
  const Dataset book = load_dataset(sources[1].options, encoder, nullptr);
  ASSERT_TRUE(mixed.train.is_in_blocks());
  ASSERT_EQ(mixed.train.count(), 3 + book.train.count());
  for (int64_t i = 0; i < book.train.count(); ++i) {
    ASSERT_EQ(mixed.train.num_documents(3 + i), book.train.num_documents(i));
    EXPECT_TRUE(std::ranges::equal(mixed.train.stored_ids(3 + i), book.train.stored_ids(i)));
    EXPECT_EQ(mixed.train.num_targets(3 + i), book.train.num_targets(i));
  }
  EXPECT_EQ(mixed.train.num_documents(0), 1);
  // In the other order too.
  std::swap(sources[0], sources[1]);
  const Dataset turned = load_mix(sources, encoder, nullptr);
  ASSERT_EQ(turned.train.count(), mixed.train.count());
  EXPECT_TRUE(std::ranges::equal(turned.train.stored_ids(0), book.train.stored_ids(0)));
  EXPECT_EQ(turned.train.total_tokens(), mixed.train.total_tokens());
}

TEST(Mix, RatedAnswersMeetOthersOfAllSources) {
  const Folder folder;
  const auto rated = [&](const std::string& name, const std::string& prompt) {
    return folder.write(name, R"({"prompt":")" + prompt + R"(","completion":"yes","label":true})" +
                                  "\n" + R"({"prompt":")" + prompt +
                                  R"(","completion":"no","label":false})" + "\n");
  };
  std::vector<MixSource> sources = {source_of("a", rated("a.jsonl", "one")),
                                    source_of("b", rated("b.jsonl", "two"))};
  for (MixSource& source : sources) source.options.ratings = true;
  // Alone, each has one prompt only, which is refused.
  EXPECT_THROW(load_dataset(sources[0].options, byte_encoder(false), nullptr), UserError);
  const Dataset mixed = load_mix(sources, byte_encoder(false), nullptr);
  EXPECT_EQ(mixed.train.count(), 4);
  EXPECT_EQ(mixed.train_others.count(), 4);
  const RatingCounts ratings = count_ratings(mixed.train);
  EXPECT_EQ(ratings.desirable, 2);
  EXPECT_EQ(ratings.undesirable, 2);
}

TEST(Mix, WhatIsWrongInASourceNamesIt) {
  const Folder folder;
  std::vector<MixSource> sources = {
      source_of("good.jsonl", folder.write("good.jsonl", questions(2, "yes"))),
      source_of("bad.jsonl", folder.write("bad.jsonl", "{\"topic\":\"q\"}\n"))};
  EXPECT_TRUE(message_of([&] {
                load_mix(sources, byte_encoder(false), nullptr);
              }).starts_with("bad.jsonl: "));
  sources[1].options = {.name = "Synthetic"};
  EXPECT_NE(
      message_of([&] { load_mix(sources, byte_encoder(false), nullptr); }).find("cannot be mixed"),
      std::string::npos);
}

}  // namespace
}  // namespace snug::data
