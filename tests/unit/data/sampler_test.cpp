// SPDX-License-Identifier: Apache-2.0
#include "data/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "data/random.h"
#include "data_fixtures.h"

namespace snug::data {
namespace {

using Step = std::vector<std::vector<int64_t>>;

std::vector<int64_t> flat(const Step& step) {
  std::vector<int64_t> samples;
  for (const auto& micro_batch : step)
    samples.insert(samples.end(), micro_batch.begin(), micro_batch.end());
  return samples;
}

std::vector<Step> all_steps(Sampler sampler) {
  std::vector<Step> steps;
  while (!sampler.done()) steps.push_back(sampler.next_step());
  return steps;
}

TEST(Random, IsSplitMix64) {
  // First outputs for seed 1234567 as published with the reference implementation.
  SplitMix random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317ULL);
  EXPECT_EQ(random.next(), 3203168211198807973ULL);
}

TEST(Random, PermutationIsPinned) {
  EXPECT_EQ(permutation(8, derive(42, 0)), (std::vector<int64_t>{7, 5, 3, 1, 2, 4, 0, 6}));
  EXPECT_NE(permutation(8, derive(42, 0)), permutation(8, derive(42, 1)));
  EXPECT_NE(permutation(8, derive(42, 0)), permutation(8, derive(43, 0)));
}

TEST(Random, BoundsAreEvenlyHit) {
  SplitMix random(7);
  std::vector<int> hits(10);
  for (int i = 0; i < 100000; ++i) ++hits[random.below(10)];
  for (const int count : hits) EXPECT_NEAR(count, 10000, 500);
}

TEST(Sampler, ReadsEverySampleOnceAnEpoch) {
  const Sampler sampler(
      {.num_samples = 103, .global_batch_size = 16, .micro_batch_size = 4, .epochs = 3});
  EXPECT_EQ(sampler.num_steps(), 20);  // 309 samples
  const std::vector<Step> steps = all_steps(sampler);
  ASSERT_EQ(steps.size(), 20U);
  std::vector<int64_t> read;
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::vector<int64_t> samples = flat(steps[i]);
    EXPECT_EQ(samples.size(), i + 1 < steps.size() ? 16U : 5U);
    for (const auto& micro_batch : steps[i]) EXPECT_LE(micro_batch.size(), 4U);
    read.insert(read.end(), samples.begin(), samples.end());
  }
  for (size_t epoch = 0; epoch < 3; ++epoch) {
    const std::set<int64_t> seen(read.begin() + epoch * 103, read.begin() + (epoch + 1) * 103);
    EXPECT_EQ(seen.size(), 103U);
  }
  EXPECT_FALSE(std::equal(read.begin(), read.begin() + 103, read.begin() + 103));
}

TEST(Sampler, CutsMicroBatchesEvenly) {
  Sampler sampler({.num_samples = 10, .global_batch_size = 10, .micro_batch_size = 4});
  const Step step = sampler.next_step();
  ASSERT_EQ(step.size(), 3U);
  EXPECT_EQ(step[0].size(), 4U);
  EXPECT_EQ(step[1].size(), 3U);
  EXPECT_EQ(step[2].size(), 3U);
  EXPECT_TRUE(sampler.done());
  EXPECT_TRUE(sampler.next_step().empty());
}

TEST(Sampler, StopsAtTheSmallerOfEpochsAndMaxSteps) {
  const SamplerOptions base = {.num_samples = 10, .global_batch_size = 4, .micro_batch_size = 2};
  for (const auto& [epochs, max_steps, wanted] :
       {std::tuple{2, 0, 5}, {2, 3, 3}, {2, 99, 5}, {0, 7, 7}}) {
    SamplerOptions options = base;
    options.epochs = epochs;
    options.max_steps = max_steps;
    EXPECT_EQ(Sampler(options).num_steps(), wanted);
    EXPECT_EQ(all_steps(Sampler(options)).size(), static_cast<size_t>(wanted));
  }
}

TEST(Sampler, ABatchLargerThanTheDataIsOneStep) {
  const std::vector<Step> steps = all_steps(
      Sampler({.num_samples = 3, .global_batch_size = 16, .micro_batch_size = 2, .epochs = 2}));
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(flat(steps[0]).size(), 6U);
}

TEST(Sampler, ResumesAnywhereAsIfNeverStopped) {
  const SamplerOptions options = {.num_samples = 23,
                                  .global_batch_size = 6,
                                  .micro_batch_size = 4,
                                  .epochs = 4,
                                  .seed = 5,
                                  .first = {20, 3}};
  const std::vector<Step> whole = all_steps(Sampler(options));
  Sampler running(options);
  for (size_t stop = 0; stop < whole.size(); ++stop) {
    Sampler resumed(options);
    resumed.restore(running.position());
    for (size_t i = stop; i < whole.size(); ++i) EXPECT_EQ(resumed.next_step(), whole[i]) << stop;
    EXPECT_TRUE(resumed.done());
    running.next_step();
  }
}

// Wherever an epoch ends: a plan knows of no sample that is there twice.
TEST(Sampler, KeepsASampleApartFromItself) {
  for (const int64_t count : {1, 5, 7, 12, 40})
    for (const int64_t step : {1, 4, 6, 13, 30}) {
      SCOPED_TRACE(fmt::format("{} samples, steps of {}", count, step));
      const SamplerOptions options{
          .num_samples = count, .global_batch_size = step, .micro_batch_size = step, .epochs = 30};
      Sampler sampler(options);
      std::vector<int64_t> all;
      while (!sampler.done()) {
        Sampler resumed(options);
        resumed.restore(sampler.position());
        EXPECT_EQ(resumed.upcoming_step(), sampler.upcoming_step());
        const auto micro_batches = sampler.next_step();
        all.insert(all.end(), micro_batches[0].begin(), micro_batches[0].end());
      }
      for (int64_t epoch = 0; epoch < 30; ++epoch)
        EXPECT_EQ(std::set<int64_t>(all.begin() + epoch * count, all.begin() + (epoch + 1) * count)
                      .size(),
                  static_cast<size_t>(count));
      if (count % step == 0) continue;  // no micro-batch lies across an epoch's end
      for (int64_t together = 1; together <= step; ++together)
        for (auto begin = all.begin(); all.end() - begin >= together; ++begin)
          for (int64_t i = 0; i < count; ++i)
            ASSERT_LE(std::count(begin, begin + together, i), (together + count - 1) / count)
                << together << " from " << begin - all.begin();
    }
}

TEST(Sampler, StepsHaveTheSameSamplesForAnyMicroBatch) {
  const auto steps = [](int64_t micro_batch_size) {
    Sampler sampler({.num_samples = 23,
                     .global_batch_size = 6,
                     .micro_batch_size = micro_batch_size,
                     .epochs = 4,
                     .first = {20, 3}});
    std::vector<std::set<int64_t>> result;
    while (!sampler.done()) {
      const std::vector<int64_t> samples = flat(sampler.next_step());
      result.emplace_back(samples.begin(), samples.end());
    }
    return result;
  };
  for (const int64_t size : {2, 3, 6, 8}) EXPECT_EQ(steps(1), steps(size)) << size;
}

TEST(Sampler, SameSeedSameOrderOtherSeedOther) {
  const auto order = [](uint64_t seed) {
    return all_steps(Sampler({.num_samples = 50, .global_batch_size = 5, .seed = seed}));
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
}

TEST(Sampler, RanksPartitionEachStep) {
  for (const int64_t world_size : {1, 2, 3, 4, 7}) {
    const SamplerOptions options = {
        .num_samples = 45, .global_batch_size = 12, .micro_batch_size = 2, .epochs = 2};
    Sampler whole(options);
    std::vector<Sampler> ranks(static_cast<size_t>(world_size), Sampler(options));
    while (!whole.done()) {
      const std::vector<int64_t> wanted = flat(whole.next_step());
      std::vector<int64_t> joined;
      std::set<size_t> num_micro_batches;
      size_t smallest = wanted.size(), largest = 0;
      for (int64_t rank = 0; rank < world_size; ++rank) {
        const Step step = ranks[static_cast<size_t>(rank)].next_step(rank, world_size);
        const std::vector<int64_t> share = flat(step);
        for (const auto& micro_batch : step) EXPECT_LE(micro_batch.size(), 2U);
        joined.insert(joined.end(), share.begin(), share.end());
        num_micro_batches.insert(step.size());
        smallest = std::min(smallest, share.size());
        largest = std::max(largest, share.size());
      }
      EXPECT_EQ(joined, wanted) << world_size;
      EXPECT_EQ(num_micro_batches.size(), 1U);
      EXPECT_LE(largest - smallest, 1U);
    }
    for (const Sampler& rank : ranks) EXPECT_EQ(rank.position(), whole.position());
  }
}

TEST(Sampler, OpensWithTheSamplesAskedFor) {
  const SamplerOptions options = {.num_samples = 40,
                                  .global_batch_size = 16,
                                  .micro_batch_size = 4,
                                  .epochs = 2,
                                  .first = {7, 0, 33, 2}};
  Sampler sampler(options);
  EXPECT_EQ(sampler.next_step(0, 2)[0], options.first);
  const std::vector<Step> steps = all_steps(Sampler(options));
  std::set<int64_t> epoch;
  for (size_t i = 0; i < 2; ++i)
    for (const int64_t sample : flat(steps[i])) epoch.insert(sample);
  EXPECT_EQ(epoch.size(), 32U);
}

TEST(Sampler, KeepsTheOrderWhenNotShuffling) {
  Sampler sampler(
      {.num_samples = 5, .global_batch_size = 3, .micro_batch_size = 3, .shuffle = false});
  EXPECT_EQ(flat(sampler.next_step()), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_DOUBLE_EQ(sampler.epochs_done(), 0.6);
  EXPECT_EQ(flat(sampler.next_step()), (std::vector<int64_t>{3, 4}));
}

TEST(Sampler, RefusesWhatMakesNoStep) {
  EXPECT_CONTAINS(message_of([] { Sampler({.num_samples = 0}); }), "no training samples");
  EXPECT_CONTAINS(message_of([] { Sampler({.num_samples = 1, .global_batch_size = 0}); }),
                  "train.global_batch_size = 0");
  EXPECT_CONTAINS(message_of([] { Sampler({.num_samples = 1, .epochs = 0}); }),
                  "train.epochs or train.max_steps");
  EXPECT_CONTAINS(message_of([] { Sampler({.num_samples = 9, .epochs = int64_t{1} << 61}); }),
                  "too large");
  Sampler sampler({.num_samples = 5});
  for (const DataPosition& bad : {DataPosition{0, 5}, DataPosition{-1, 0}, DataPosition{0, -1},
                                  DataPosition{int64_t{1} << 62, 0}})
    EXPECT_CONTAINS(message_of([&] { sampler.restore(bad); }), "resume with the data");
}

std::vector<Row> numbered_rows(int count) {
  std::vector<Row> rows;
  for (int i = 0; i < count; ++i) rows.push_back({std::to_string(i), "", "x", {}});
  return rows;
}

TEST(Split, HoldsOutTheShareOfLitGpt) {
  EXPECT_EQ(validation_rows(2000, 0.5, SplitRounding::Up), 1000);
  EXPECT_EQ(validation_rows(2000, 0.05, SplitRounding::Up), 100);
  EXPECT_EQ(validation_rows(2000, 0.03847, SplitRounding::Up), 77);
  EXPECT_EQ(validation_rows(51760, 0.03865, SplitRounding::Down), 2000);
  EXPECT_EQ(validation_rows(52002, 0.03847, SplitRounding::Down), 2000);
  EXPECT_EQ(validation_rows(100, 0.29, SplitRounding::Down), 29);
  EXPECT_EQ(validation_rows(3, 0.01, SplitRounding::Down), 1);
  EXPECT_EQ(validation_rows(3, 0, SplitRounding::Up), 0);
}

TEST(Split, PartsAreDisjointWholeAndRepeatable) {
  const Split split = split_rows(numbered_rows(50), 0.3, 42);
  ASSERT_EQ(split.validation.size(), 15U);
  ASSERT_EQ(split.train.size(), 35U);
  std::set<std::string> names;
  for (const auto* part : {&split.train, &split.validation})
    for (const Row& row : *part) names.insert(row.instruction);
  EXPECT_EQ(names.size(), 50U);
  const auto first = [](uint64_t seed) {
    std::string all;
    for (const Row& row : split_rows(numbered_rows(50), 0.3, seed).validation)
      all += row.instruction + " ";
    return all;
  };
  EXPECT_EQ(first(42), first(42));
  EXPECT_NE(first(42), first(43));
}

TEST(Split, RefusesSharesThatLeaveNothing) {
  for (const double bad : {1.0, -0.1, 1.5, std::nan("")})
    EXPECT_CONTAINS(message_of([&] { split_rows(numbered_rows(4), bad, 1); }),
                    "val_split_fraction");
  EXPECT_CONTAINS(message_of([] { split_rows(numbered_rows(2), 0.6, 1, SplitRounding::Up); }),
                  "leaves none to train on");
  EXPECT_EQ(split_rows(numbered_rows(1), 0.5, 1).train.size(), 1U) << "to look at a single row";
}

TEST(Split, ReadsAFolderOfTwoFiles) {
  const Folder folder;
  folder.write("train.json", R"([{"instruction":"t","output":"a"}])");
  EXPECT_CONTAINS(message_of([&] { read_split_folder(folder.path()); }), "no val.json");
  folder.write("val.jsonl", R"({"instruction":"v","output":"a"})");
  const Split split = read_split_folder(folder.path());
  EXPECT_EQ(split.train[0].instruction, "t");
  EXPECT_EQ(split.validation[0].instruction, "v");

  const Folder other;
  other.write("metadata.jsonl", "{}");
  EXPECT_CONTAINS(message_of([&] { read_split_folder(other.path()); }), "--data ImageFolder");
  other.write("state.json", "{}");
  EXPECT_CONTAINS(message_of([&] { read_split_folder(other.path()); }), "--data HFDataset");
  other.write("train.csv", "instruction,output\nt,a\n");
  other.write("validation.tsv", "instruction\toutput\nw\ta\n");
  EXPECT_EQ(read_split_folder(other.path()).validation[0].instruction, "w");
}

// The sources of a mix: 40 of which an epoch has 40, 30 of which it has 7, and 5 of which it has 1.
SamplerOptions mixed_samples() {
  return {.num_samples = 75,
          .ranges = {{.end = 40, .per_epoch = 40},
                     {.end = 70, .per_epoch = 7},
                     {.end = 75, .per_epoch = 1}},
          .global_batch_size = 6,
          .micro_batch_size = 2,
          .epochs = 5};
}

TEST(Sampler, AnEpochHasAPartOfEachRangeAndGoesOnWhereTheLastOneStopped) {
  const Sampler sampler(mixed_samples());
  EXPECT_EQ(sampler.num_steps(), 40);  // 5 · 48 samples
  std::vector<int64_t> read;
  for (const Step& step : all_steps(sampler)) {
    const std::vector<int64_t> samples = flat(step);
    EXPECT_EQ(std::set<int64_t>(samples.begin(), samples.end()).size(), samples.size());
    read.insert(read.end(), samples.begin(), samples.end());
  }
  ASSERT_EQ(read.size(), 5U * 48);
  std::map<int64_t, int64_t> times;
  for (size_t epoch = 0; epoch < 5; ++epoch) {
    const std::set<int64_t> own(read.begin() + static_cast<int64_t>(epoch) * 48,
                                read.begin() + static_cast<int64_t>(epoch + 1) * 48);
    EXPECT_EQ(own.size(), 48U) << "no sample twice in an epoch";
    EXPECT_EQ(std::distance(own.begin(), own.lower_bound(40)), 40);
    EXPECT_EQ(std::distance(own.lower_bound(40), own.lower_bound(70)), 7);
    for (const int64_t sample : own) ++times[sample];
  }
  for (int64_t sample = 40; sample < 70; ++sample)
    EXPECT_TRUE(times[sample] == 1 || times[sample] == 2) << sample;  // 35 of 30
  for (int64_t sample = 70; sample < 75; ++sample) EXPECT_EQ(times[sample], 1) << sample;
}

TEST(Sampler, RangesAreCountedAsTheyAreReadAndARestoredSamplerGoesOnAlike) {
  Sampler sampler(mixed_samples());
  std::vector<int64_t> counts(3);
  while (!sampler.done()) {
    EXPECT_EQ(sampler.read_of_ranges(), counts);
    Sampler again(mixed_samples());
    again.restore(sampler.position());
    const Step step = sampler.next_step();
    EXPECT_EQ(again.next_step(), step);
    for (const int64_t sample : flat(step)) ++counts[sample < 40 ? 0 : sample < 70 ? 1 : 2];
  }
  EXPECT_EQ(sampler.read_of_ranges(), (std::vector<int64_t>{200, 35, 5}));
}

TEST(Sampler, OfASmallPartOnlyAsManyComeFirstAsAnEpochHas) {
  SamplerOptions options = mixed_samples();
  options.first = {65, 52, 71, 74, 70};
  Sampler sampler(options);
  const std::vector<int64_t> samples = flat(sampler.next_step());
  for (const int64_t first : {65, 52, 71})
    EXPECT_EQ(std::ranges::count(samples, first), 1) << first;
  std::vector<int64_t> epoch = samples;
  while (sampler.position().epoch == 0) {
    const std::vector<int64_t> more = flat(sampler.next_step());
    epoch.insert(epoch.end(), more.begin(), more.end());
  }
  EXPECT_EQ(std::set<int64_t>(epoch.begin(), epoch.end()).size(), 48U);
  EXPECT_EQ(sampler.read_of_ranges(), (std::vector<int64_t>{40, 7, 1}));
}

// A plan rests on that.
TEST(Sampler, DrawnMixesHaveNoSampleTwiceInAMicroBatch) {
  SplitMix random(11);
  for (int trial = 0; trial < 200; ++trial) {
    SamplerOptions options{.epochs = 4, .seed = random.next()};
    int64_t epoch = 0;
    for (uint64_t r = 0; r <= random.below(3); ++r) {
      const auto size = static_cast<int64_t>(1 + random.below(20));
      const auto part = static_cast<int64_t>(random.below(static_cast<uint64_t>(size) + 1));
      options.num_samples += size;
      options.ranges.push_back({.end = options.num_samples, .per_epoch = part});
      epoch += part;
    }
    if (epoch == 0) continue;
    options.global_batch_size = static_cast<int64_t>(1 + random.below(12));
    options.micro_batch_size = static_cast<int64_t>(1 + random.below(4));
    if (epoch < options.micro_batch_size) {
      EXPECT_THROW(Sampler{options}, UserError);
      continue;
    }
    int64_t read = 0;
    for (const Step& step : all_steps(Sampler(options))) {
      read += std::ssize(flat(step));
      for (const std::vector<int64_t>& micro_batch : step)
        ASSERT_EQ(std::set<int64_t>(micro_batch.begin(), micro_batch.end()).size(),
                  micro_batch.size())
            << "trial " << trial;
    }
    ASSERT_EQ(read, 4 * epoch);
  }
}

}  // namespace
}  // namespace snug::data
