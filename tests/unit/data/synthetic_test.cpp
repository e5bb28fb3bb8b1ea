// `--data Synthetic`: what is promised of its rule, its lengths and its pictures.
// SPDX-License-Identifier: Apache-2.0
#include "data/synthetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "data_fixtures.h"
#include "files/pictures/picture.h"

namespace snug::data {
namespace synthetic_test {

DatasetOptions options_of(int64_t vocabulary, int64_t length, Reading reading = {}) {
  return {.name = "Synthetic",
          .num_workers = 2,
          .max_seq_length = length,
          .max_samples = 40,
          .reading = reading,
          .processor = {.size = reading.image_size},
          .vocabulary = vocabulary};
}

constexpr Reading kPictures = {.image_size = 20, .num_picture_tokens = 3, .picture_token = 7};

TEST(Synthetic, EverySampleIsAsLongAsAllowed) {
  const Dataset dataset = load_synthetic(options_of(1000, 33));
  ASSERT_EQ(dataset.train.count(), 40);
  EXPECT_TRUE(dataset.validation.empty());
  for (int64_t i = 0; i < 40; ++i) {
    const Sample sample = dataset.train.sample(i);
    ASSERT_EQ(sample.ids.size(), 33U);
    EXPECT_EQ(sample.ids, sample.labels);
    for (const int32_t id : sample.ids) EXPECT_TRUE(id >= 0 && id < 1000) << id;
  }
}

// The promised rule, measured: at most four successors a symbol, whose shares give the entropy.
TEST(Synthetic, TokensFollowARuleOfTheStatedEntropy) {
  DatasetOptions options = options_of(200, 4000);
  const Dataset dataset = load_synthetic(options);
  std::map<int32_t, std::map<int32_t, double>> counts;
  double total = 0;
  for (int64_t i = 0; i < dataset.train.count(); ++i) {
    const Sample sample = dataset.train.sample(i);
    for (size_t t = 1; t < sample.ids.size(); ++t, ++total)
      ++counts[sample.ids[t - 1]][sample.ids[t]];
  }
  EXPECT_EQ(counts.size(), 50U);  // a quarter of the vocabulary
  double nats = 0, on_equal_terms = 0;
  for (const auto& [symbol, successors] : counts) {
    EXPECT_LE(successors.size(), 4U);
    double of_symbol = 0;
    for (const auto& [next, count] : successors) of_symbol += count;
    for (const auto& [next, count] : successors) nats -= count * std::log(count / of_symbol);
    on_equal_terms -= of_symbol * std::log(of_symbol / total);
  }
  // Two successors may be one, which only takes surprise away.
  EXPECT_LE(nats / total, SyntheticRule::kEntropy + 0.01);
  EXPECT_GE(nats / total, 0.9 * SyntheticRule::kEntropy);
  EXPECT_NEAR(on_equal_terms / total, std::log(50.0), 0.01);
}

TEST(Synthetic, TheSeedDecides) {
  const auto fingerprint = [](uint64_t seed, int workers) {
    DatasetOptions options = options_of(500, 16);
    options.seed = seed;
    options.num_workers = workers;
    return load_synthetic(options).train.fingerprint();
  };
  EXPECT_EQ(fingerprint(1, 0), fingerprint(1, 3));
  EXPECT_NE(fingerprint(1, 0), fingerprint(2, 0));
}

TEST(Synthetic, AShareIsHeldOutAndUnlikeTheRest) {
  DatasetOptions options = options_of(500, 16);
  options.val_split_fraction = 0.25;
  const Dataset dataset = load_synthetic(options);
  EXPECT_EQ(dataset.validation.count(), 10);
  EXPECT_EQ(dataset.train.count(), 30);
  std::set<std::vector<int32_t>> all;
  for (const SampleStore* store : {&dataset.train, &dataset.validation})
    for (int64_t i = 0; i < store->count(); ++i) all.insert(store->sample(i).ids);
  EXPECT_EQ(all.size(), 40U);
}

TEST(Synthetic, AnEncoderGetsAsMuchAsItsDecoder) {
  const Dataset dataset =
      load_synthetic(options_of(500, 16, {.source = true, .decoder_start_token = 0}));
  const Sample sample = dataset.train.sample(0);
  EXPECT_EQ(sample.ids.size(), 32U);
  EXPECT_EQ(sample.source_tokens, 16);
  EXPECT_EQ(sample.labels[15], -100);
  EXPECT_EQ(sample.labels[16], sample.ids[16]);
}

TEST(Synthetic, ACaptionBeginsWithWhatIsToBeSeen) {
  const Dataset dataset = load_synthetic(options_of(500, 11, kPictures));
  ASSERT_EQ(dataset.train_pictures.row_of.size(), 40U);
  std::map<int64_t, std::set<int32_t>> said_of_colour, said_of_shape;
  std::set<int32_t> first, second;
  for (int64_t i = 0; i < 40; ++i) {
    const Sample sample = dataset.train.sample(i);
    ASSERT_EQ(sample.ids.size(), 11U);
    for (size_t t = 0; t < 11; ++t) {
      EXPECT_EQ(sample.ids[t] == kPictures.picture_token, t < 3) << t;
      EXPECT_EQ(sample.labels[t], t < 3 ? -100 : sample.ids[t]);
    }
    const SyntheticPicture picture = synthetic_picture(dataset.train_pictures.row_of[i]);
    said_of_colour[picture.colour].insert(sample.ids[3]);
    said_of_shape[picture.shape].insert(sample.ids[4]);
    first.insert(sample.ids[3]);
    second.insert(sample.ids[4]);
  }
  EXPECT_EQ(first.size(), 8U);
  EXPECT_EQ(second.size(), 4U);
  for (const auto& [colour, ids] : said_of_colour) EXPECT_EQ(ids.size(), 1U) << colour;
  for (const auto& [shape, ids] : said_of_shape) EXPECT_EQ(ids.size(), 1U) << shape;
}

TEST(Synthetic, PicturesArePaintedInTheirColours) {
  const SyntheticPictures pictures(32, 20);
  std::set<std::vector<uint8_t>> all;
  for (int64_t row = 0; row < 32; ++row) {
    const files::Picture picture =
        files::decode_picture(pictures.picture(row).bytes, pictures.where(row));
    ASSERT_EQ(picture.width, 20);
    ASSERT_EQ(picture.height, 20);
    all.insert(picture.rgb);
    const auto again = files::decode_picture(pictures.picture(row).bytes, "again");
    EXPECT_EQ(picture.rgb, again.rgb);
    // The background is grey; the one white shape is the exception.
    int64_t coloured = 0;
    for (size_t i = 0; i < picture.rgb.size(); i += 3)
      coloured += picture.rgb[i] != picture.rgb[i + 1] || picture.rgb[i] == 245;
    EXPECT_GE(coloured, 20) << row;
    EXPECT_LE(coloured, 20 * 20 / 2) << row;
  }
  EXPECT_EQ(all.size(), 32U);
}

TEST(Synthetic, WorkersMakeItsPicturesLikeAnyOther) {
  const Dataset dataset = load_synthetic(options_of(500, 11, kPictures));
  const auto batches = dataset.train_batches();
  const std::vector<int64_t> indices = {4, 9};
  batches->expect({indices});
  const MicroBatch batch = *batches->make(indices);
  EXPECT_EQ(batch.pixels.size(), 2U * 20 * 20 * 3);
  EXPECT_EQ(batch.picture_rows.size(), 6U);
  EXPECT_EQ(batch.loss_tokens, 2 * 8);
}

TEST(Synthetic, IsAmongTheNamesOfDataSets) {
  const std::vector<std::string> names = dataset_names();
  EXPECT_NE(std::find(names.begin(), names.end(), "Synthetic"), names.end());
  EXPECT_EQ(load_dataset(options_of(500, 16), TextEncoder(), nullptr).train.count(), 40);
}

}  // namespace synthetic_test
}  // namespace snug::data
