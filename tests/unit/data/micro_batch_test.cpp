// SPDX-License-Identifier: Apache-2.0
#include "data/micro_batch.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "data/dataset.h"
#include "data/random.h"
#include "data_fixtures.h"

namespace snug::data {
namespace micro_batch_test {

Sample sample_of(std::vector<int32_t> ids, size_t num_masked, int64_t raw = 0) {
  Sample sample{ids, ids, raw, false};
  std::fill_n(sample.labels.begin(), num_masked, -100);
  return sample;
}

std::vector<Sample> random_samples(uint64_t seed) {
  SplitMix random(seed);
  std::vector<Sample> samples(1 + random.below(8));
  for (Sample& sample : samples) {
    std::vector<int32_t> ids(1 + random.below(30));
    for (int32_t& id : ids) id = static_cast<int32_t>(random.below(50));
    sample = sample_of(ids, random.below(ids.size() + 1), static_cast<int64_t>(random.below(9)));
  }
  return samples;
}

TEST(MicroBatch, PacksDocumentsOneAfterAnother) {
  const std::vector<Sample> samples = {sample_of({5, 6, 7}, 2, 4), sample_of({8}, 0, 1),
                                       sample_of({9, 10}, 0, 2)};
  const MicroBatch batch = make_micro_batch(samples, {});
  using Ints = std::vector<int32_t>;
  EXPECT_EQ(batch.input_ids, (Ints{5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(batch.targets, (Ints{-100, 7, -100, -100, 10, -100}));
  EXPECT_EQ(batch.positions, (Ints{0, 1, 2, 0, 0, 1}));
  EXPECT_EQ(batch.cu_seqlens, (Ints{0, 3, 4, 6}));
  EXPECT_EQ(batch.max_seqlen, 3);
  EXPECT_EQ(batch.loss_tokens, 2);
  EXPECT_EQ(batch.real_tokens, 6);
  EXPECT_EQ(batch.padded_tokens, 9);
  EXPECT_EQ(batch.raw_tokens, 7);
}

TEST(MicroBatch, PadsEachDocumentToTheLongest) {
  const std::vector<Sample> samples = {sample_of({5, 6, 7}, 0), sample_of({8}, 0)};
  const MicroBatch batch =
      make_micro_batch(samples, {.packing = false, .ignore_index = -1, .pad_id = 99});
  using Ints = std::vector<int32_t>;
  EXPECT_EQ(batch.input_ids, (Ints{5, 6, 7, 8, 99, 99}));
  EXPECT_EQ(batch.targets, (Ints{6, 7, -1, -1, -1, -1}));
  EXPECT_EQ(batch.positions, (Ints{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(batch.cu_seqlens, (Ints{0, 3, 6}));
  EXPECT_EQ(batch.real_tokens, 4);
  EXPECT_EQ(batch.padded_tokens, 6);
}

// A pair's documents stand side by side with their numbers; a target's numbers stand where the
// target does, and those of a token that is no target nowhere.
TEST(MicroBatch, DocumentsOfASampleAndTheirNumbers) {
  SampleStore store;
  for (const auto& ids : {std::vector<int32_t>{1, 2, 3}, {4, 5}, {6, 7}, {8, 9, 10, 11}})
    store.append(sample_of(ids, ids.size() / 2));
  store.set_columns(
      {{.values = {0.1F, 0.2F, 0.3F, 0.4F}},
       {.is_per_target = true, .width = 2, .fill = -1, .values = {0, 0,  2,  20,  3,  30, 0, 0,
                                                                  5, 50, 0,  0,   7,  70, 0, 0,
                                                                  9, 90, 10, 100, 11, 110}}});
  store.group(2);
  EXPECT_EQ(store.count(), 2);
  EXPECT_EQ(store.length(1), 6);
  EXPECT_EQ(store.longest(), 4);
  EXPECT_EQ(store.longest_samples(1), std::vector<int64_t>{1});
  EXPECT_EQ(store.num_targets(0), 3);
  EXPECT_EQ(store.most_targets(1), 3);
  using Floats = std::vector<float>;
  const std::vector<int64_t> second = {1}, both = {1, 0};
  const MicroBatch one = make_micro_batch(store, second, {});
  EXPECT_EQ(one.cu_seqlens, (std::vector<int32_t>{0, 2, 6}));
  EXPECT_EQ(one.columns[0].values, (Floats{0.3F, 0.4F}));
  EXPECT_EQ(one.columns[1].values, (Floats{7, 70, -1, -1, -1, -1, 10, 100, 11, 110, -1, -1}));
  const MicroBatch padded = make_micro_batch(store, both, {.packing = false});
  EXPECT_EQ(padded.cu_seqlens, (std::vector<int32_t>{0, 4, 8, 12, 16}));
  EXPECT_EQ(padded.columns[0].values, (Floats{0.3F, 0.4F, 0.1F, 0.2F}));
  EXPECT_EQ(padded.columns[1].values,
            (Floats{7, 70, -1, -1, -1, -1, -1, -1, -1, -1, 10, 100, 11, 110, -1, -1,
                    2, 20, 3,  30, -1, -1, -1, -1, 5,  50, -1, -1,  -1, -1,  -1, -1}));
}

// The rows of a prompt that both answers have stand once, but for its last one, from which each
// answer's first token is learnt.
TEST(MicroBatch, TheBeginningThatDocumentsShareStandsOnce) {
  SampleStore store;
  const auto append = [&](std::vector<int32_t> ids, size_t masked) {
    store.append(sample_of(std::move(ids), masked));
  };
  append({1, 2, 3, 20, 21}, 3);
  append({1, 2, 3, 30}, 3);
  append({5, 6, 40}, 2);
  append({7, 6, 40, 41}, 2);
  std::vector<float> numbers(16);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  store.set_columns({{.is_per_target = true, .fill = -1, .values = numbers}});
  store.group(2);
  const uint64_t fingerprint = store.fingerprint();
  store.share_prompts();
  EXPECT_TRUE(store.shares_prompts());
  EXPECT_EQ(store.fingerprint(), fingerprint);
  EXPECT_EQ(store.shared_tokens(0), 2);
  EXPECT_EQ(store.shared_tokens(1), 0);
  EXPECT_EQ(store.length(0), 7);
  EXPECT_EQ(store.whole_length(0), 9);
  EXPECT_EQ(store.stored_ids(0).size(), 9U);
  EXPECT_EQ(store.total_tokens(), 14);
  EXPECT_EQ(store.most_keys(2), 16);
  const std::vector<int64_t> both = {0, 1};
  const MicroBatch batch = make_micro_batch(store, both, {});
  using Ints = std::vector<int32_t>;
  EXPECT_EQ(batch.input_ids, (Ints{1, 2, 3, 20, 21, 3, 30, 5, 6, 40, 7, 6, 40, 41}));
  EXPECT_EQ(batch.targets,
            (Ints{-100, -100, 20, 21, -100, 30, -100, -100, 40, -100, -100, 40, 41, -100}));
  EXPECT_EQ(batch.positions, (Ints{0, 1, 2, 3, 4, 2, 3, 0, 1, 2, 0, 1, 2, 3}));
  EXPECT_EQ(batch.cu_seqlens, (Ints{0, 5, 7, 10, 14}));
  EXPECT_EQ(batch.columns[0].values,
            (std::vector<float>{-1, -1, 3, 4, -1, 8, -1, -1, 11, -1, -1, 14, 15, -1}));
  ASSERT_EQ(batch.shared.size(), 4U);
  EXPECT_EQ(batch.shared[1].first_row, 0);
  EXPECT_EQ(batch.shared[1].count, 2);
  EXPECT_EQ(batch.shared[3].count, 0);
  EXPECT_EQ(batch.most_keys, 16);
  EXPECT_EQ(batch.real_tokens, 14);
  // Padded documents have all of their rows.
  const MicroBatch padded = make_micro_batch(store, both, {.packing = false});
  EXPECT_TRUE(padded.shared.empty());
  EXPECT_EQ(padded.real_tokens, 16);
  store.repeat_to(5);
  EXPECT_EQ(store.total_tokens(), 2 * 14 + 7);
}

// A prompt that is learnt is learnt in each document, so that it stands in each.
TEST(SampleStore, SharesNoBeginningThatIsLearntOrNotWorthIt) {
  SampleStore learnt;
  for (int i = 0; i < 2; ++i) learnt.append(sample_of({1, 2, 3, 20 + i}, 0));
  learnt.group(2);
  learnt.share_prompts(/*least=*/0);
  EXPECT_EQ(learnt.shared_tokens(0), 0);
  SampleStore little;
  for (int i = 0; i < 2; ++i) {
    std::vector<int32_t> ids(50, i);
    ids[0] = ids[1] = 9;
    little.append(sample_of(ids, 2));
  }
  little.group(2);
  little.share_prompts();
  EXPECT_FALSE(little.shares_prompts());
  EXPECT_EQ(little.total_tokens(), 100);
  little.share_prompts(/*least=*/0);
  EXPECT_EQ(little.total_tokens(), 99);
}

// Labels that are the padded ids: each place learns the id at the next one.
TEST(MicroBatch, PaddingInTheLossMakesTargetsOfThePaddedIds) {
  const MicroBatchOptions options = {.pad_id = 99, .padding_in_loss = true};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<Sample> samples = random_samples(seed);
    for (Sample& sample : samples) sample.labels = sample.ids;
    const MicroBatch batch = make_micro_batch(samples, options);
    const auto length = static_cast<size_t>(batch.max_seqlen);
    ASSERT_EQ(batch.input_ids.size(), length * samples.size());
    for (size_t i = 0; i < batch.targets.size(); ++i)
      EXPECT_EQ(batch.targets[i], i % length + 1 == length ? -100 : batch.input_ids[i + 1]);
    EXPECT_EQ(batch.loss_tokens, std::ssize(samples) * (batch.max_seqlen - 1));
  }
}

TEST(MicroBatch, PaddingInTheLossOfADecoderStandsBehindItsTarget) {
  const auto sample = [](std::vector<int32_t> ids) {
    Sample made = sample_of(std::move(ids), 2);
    made.source_tokens = 2;
    return made;
  };
  const std::vector<Sample> samples = {sample({3, 4, 5, 6, 7}), sample({3, 4, 8})};
  const MicroBatch batch =
      make_micro_batch(samples, {.pad_id = 0,
                                 .padding_in_loss = true,
                                 .reading = {.source = true, .decoder_start_token = 1}});
  using Ints = std::vector<int32_t>;
  EXPECT_EQ(batch.targets, (Ints{5, 6, 7, 8, 0, 0}));
  EXPECT_EQ(batch.input_ids, (Ints{1, 5, 6, 1, 8, 0}));
  EXPECT_EQ(batch.loss_tokens, 6);
}

TEST(MicroBatch, OnlyPaddingThatIsLearntNeedsATokenOfItsOwn) {
  DatasetOptions options{.vocabulary = 304};
  EXPECT_EQ(batch_options(options, {}, 400).pad_id, 0);
  EXPECT_EQ(batch_options(options, {}, -1).pad_id, 0);
  options.padding_in_loss = true;
  EXPECT_EQ(batch_options(options, {}, 303).pad_id, 303);
  EXPECT_THROW(batch_options(options, {}, 304), UserError);
  EXPECT_THROW(batch_options(options, {}, -1), UserError);
}

TEST(MicroBatch, EmptyIsEmpty) {
  const MicroBatch batch = make_micro_batch(std::span<const Sample>(), {});
  EXPECT_TRUE(batch.input_ids.empty());
  EXPECT_EQ(batch.cu_seqlens, std::vector<int32_t>{0});
  EXPECT_EQ(batch.padded_tokens, 0);
}

// (document, position, token, target) of every place that has a loss.
using Learnt = std::multimap<std::tuple<size_t, int32_t>, std::pair<int32_t, int32_t>>;
Learnt learnt(const MicroBatch& batch) {
  Learnt result;
  for (size_t document = 0; document + 1 < batch.cu_seqlens.size(); ++document)
    for (int32_t i = batch.cu_seqlens[document]; i < batch.cu_seqlens[document + 1]; ++i)
      if (batch.targets[i] != -100)
        result.emplace(std::tuple{document, batch.positions[i]},
                       std::pair{batch.input_ids[i], batch.targets[i]});
  return result;
}

TEST(MicroBatch, PackedAndPaddedCarryTheSameTargets) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<Sample> samples = random_samples(seed);
    const MicroBatch packed = make_micro_batch(samples, {});
    const MicroBatch padded = make_micro_batch(samples, {.packing = false});
    EXPECT_EQ(learnt(packed), learnt(padded)) << "seed " << seed;
    EXPECT_EQ(packed.loss_tokens, static_cast<int64_t>(learnt(packed).size()));
    EXPECT_EQ(packed.loss_tokens, padded.loss_tokens);
    EXPECT_EQ(packed.real_tokens, padded.real_tokens);
    EXPECT_EQ(packed.padded_tokens, padded.padded_tokens);
    EXPECT_EQ(packed.raw_tokens, padded.raw_tokens);
    EXPECT_EQ(packed.max_seqlen, padded.max_seqlen);
    EXPECT_EQ(static_cast<int64_t>(packed.input_ids.size()), packed.real_tokens);
    EXPECT_EQ(static_cast<int64_t>(padded.input_ids.size()), padded.padded_tokens);
  }
}

constexpr Reading kEncoder = {.source = true, .decoder_start_token = 0};

Sample source_sample(std::vector<int32_t> source, std::vector<int32_t> target) {
  Sample sample = sample_of(source, source.size(), 1);
  sample.source_tokens = static_cast<int64_t>(source.size());
  for (const int32_t id : target) {
    sample.ids.push_back(id);
    sample.labels.push_back(id);
  }
  return sample;
}

TEST(MicroBatch, EncoderReadsTheSourceAndTheDecoderItsTargetsShifted) {
  SampleStore store;
  store.append(source_sample({5, 6, 1}, {7, 1}));
  store.append(source_sample({8}, {9, 10, 1}));
  using Ints = std::vector<int32_t>;
  for (const bool packing : {true, false}) {
    const MicroBatch batch = make_micro_batch(store, std::vector<int64_t>{0, 1},
                                              {.packing = packing, .reading = kEncoder});
    EXPECT_EQ(batch.source_ids, (Ints{5, 6, 1, 8}));
    EXPECT_EQ(batch.source_positions, (Ints{0, 1, 2, 0}));
    EXPECT_EQ(batch.source_cu_seqlens, (Ints{0, 3, 4}));
    EXPECT_EQ(batch.source_max_seqlen, 3);
    EXPECT_EQ(batch.input_ids, packing ? (Ints{0, 7, 0, 9, 10}) : (Ints{0, 7, 0, 0, 9, 10}));
    EXPECT_EQ(batch.targets, packing ? (Ints{7, 1, 9, 10, 1}) : (Ints{7, 1, -100, 9, 10, 1}));
    EXPECT_EQ(batch.cu_seqlens, packing ? (Ints{0, 2, 5}) : (Ints{0, 3, 6}));
    EXPECT_EQ(batch.max_seqlen, 3);
    EXPECT_EQ(batch.loss_tokens, 5);
    EXPECT_EQ(batch.real_tokens, 9);
    EXPECT_EQ(batch.padded_tokens, 12);
    EXPECT_TRUE(batch.picture_rows.empty());
  }
}

Sample with_pictures(Sample sample, int64_t count) {
  sample.num_pictures = count;
  return sample;
}

TEST(MicroBatch, PicturesTakeTheFirstPlacesOfTheirDocuments) {
  const Reading reading = {.image_size = 4, .num_picture_tokens = 2, .picture_token = 50};
  const std::vector<Sample> samples = {with_pictures(sample_of({50, 50, 3, 4, 5}, 3), 1),
                                       with_pictures(sample_of({50, 50, 6, 50}, 3), 1)};
  using Ints = std::vector<int32_t>;
  const MicroBatch packed = make_micro_batch(samples, {.reading = reading});
  EXPECT_EQ(packed.picture_rows, (Ints{0, 1, 5, 6}));
  EXPECT_EQ(packed.targets, (Ints{-100, -100, 4, 5, -100, -100, -100, 50, -100}));
  EXPECT_EQ(packed.image_size, 4);
  const MicroBatch padded = make_micro_batch(samples, {.packing = false, .reading = reading});
  EXPECT_EQ(padded.picture_rows, (Ints{0, 1, 5, 6}));
  EXPECT_EQ(padded.input_ids.size(), 10);
  // With an encoder they are rows of the source.
  const Reading both = {.source = true,
                        .decoder_start_token = 0,
                        .image_size = 4,
                        .num_picture_tokens = 2,
                        .picture_token = 50};
  const std::vector<Sample> encoded = {with_pictures(source_sample({50, 50, 3}, {4, 1}), 1),
                                       with_pictures(source_sample({50, 50, 3}, {5, 1}), 1)};
  EXPECT_EQ(make_micro_batch(encoded, {.reading = both}).picture_rows, (Ints{0, 1, 3, 4}));
}

// None, one and two in a row, the last two with text between them.
TEST(MicroBatch, PicturesAreWhereTheirPlacesAre) {
  const Reading reading = {
      .image_size = 4, .num_picture_tokens = 2, .picture_token = 50, .pictures_anywhere = true};
  const std::vector<Sample> samples = {sample_of({3, 4, 5}, 1),
                                       with_pictures(sample_of({3, 50, 50, 4}, 3), 1),
                                       with_pictures(sample_of({50, 50, 6, 50, 50, 7}, 5), 2)};
  using Ints = std::vector<int32_t>;
  const MicroBatch packed = make_micro_batch(samples, {.reading = reading});
  EXPECT_EQ(packed.num_pictures, 3);
  EXPECT_EQ(packed.picture_rows, (Ints{4, 5, 7, 8, 10, 11}));
  const MicroBatch padded = make_micro_batch(samples, {.packing = false, .reading = reading});
  EXPECT_EQ(padded.picture_rows, (Ints{7, 8, 12, 13, 15, 16}));
  SampleStore store;
  for (const Sample& sample : samples) store.append(sample);
  EXPECT_EQ(store.num_pictures(0), 0);
  EXPECT_EQ(store.sample(2).num_pictures, 2);
  EXPECT_EQ(store.most_pictures(1), 2);
  EXPECT_EQ(store.most_pictures(3), 3);
  EXPECT_EQ(store.mean_pictures(), 1);
  const std::vector<int64_t> two = {2, 0};
  EXPECT_EQ(make_micro_batch(store, two, {.reading = reading}).num_pictures, 2);
  EXPECT_ANY_THROW(make_micro_batch(std::vector<Sample>{with_pictures(sample_of({3, 50}, 1), 1)},
                                    {.reading = reading}));
}

TEST(SampleStore, GivesBackWhatWentIn) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<Sample> samples = random_samples(seed);
    SampleStore store;
    for (const Sample& sample : samples) store.append(sample);
    std::vector<int64_t> indices;
    for (size_t i = 0; i < samples.size(); ++i) {
      const Sample sample = store.sample(static_cast<int64_t>(i));
      EXPECT_EQ(sample.ids, samples[i].ids);
      EXPECT_EQ(sample.labels, samples[i].labels);
      indices.push_back(static_cast<int64_t>(i));
    }
    const MicroBatch direct = make_micro_batch(samples, {});
    const MicroBatch stored = make_micro_batch(store, indices, {});
    EXPECT_EQ(direct.input_ids, stored.input_ids);
    EXPECT_EQ(direct.targets, stored.targets);
    EXPECT_EQ(direct.raw_tokens, stored.raw_tokens);
    EXPECT_EQ(store.total_tokens(), direct.real_tokens);
  }
}

// As a script does that joins all ids and cuts them every so many, but that each document is seen
// by itself.
TEST(SampleStore, BlocksAreAllTokensInTheirOrder) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::vector<Sample> samples = random_samples(seed);
    const auto length = static_cast<int64_t>(2 + seed % 9);
    SampleStore store;
    std::vector<int32_t> all;
    std::vector<int64_t> rows, row_of;  // of each sample, of each token
    for (const Sample& sample : samples) {
      store.append(sample);
      all.insert(all.end(), sample.ids.begin(), sample.ids.end());
      row_of.resize(all.size(), std::ssize(rows));
      rows.push_back(std::ssize(rows));
    }
    store.cut_into_blocks({.length = length, .joins = true}, rows);
    const auto tokens = std::ssize(all);
    ASSERT_EQ(store.count(), (tokens + length - 1) / length);
    ASSERT_EQ(std::ssize(rows), store.count());
    EXPECT_EQ(store.total_tokens(), tokens);
    EXPECT_EQ(store.most_tokens_of_sample(), std::min(length, tokens));
    int64_t most_documents = 0;
    for (int64_t i = 0; i < store.count(); ++i) {
      const std::vector<int64_t> one = {i};
      const MicroBatch batch = make_micro_batch(store, one, {});
      const auto begin = all.begin() + i * length;
      EXPECT_EQ(batch.input_ids,
                std::vector<int32_t>(begin, begin + std::min(length, tokens - i * length)));
      EXPECT_EQ(rows[static_cast<size_t>(i)], row_of[static_cast<size_t>(i * length)]);
      for (size_t at = 0; at < batch.input_ids.size(); ++at) {
        const auto token = static_cast<size_t>(i * length) + at;
        const bool begins = at == 0 || row_of[token] != row_of[token - 1];
        EXPECT_EQ(batch.positions[at] == 0, begins);
        if (begins && at > 0) {
          EXPECT_EQ(batch.targets[at - 1], -100);
        }
      }
      EXPECT_EQ(std::ssize(batch.cu_seqlens) - 1, store.num_documents(i));
      most_documents = std::max(most_documents, store.num_documents(i));
    }
    EXPECT_EQ(store.most_documents(1), most_documents);
  }
}

TEST(SampleStore, PiecesOfADocumentRepeatTheOverlapWithoutLearningIt) {
  SampleStore store;
  store.append(sample_of({1, 2, 3, 4, 5, 6, 7}, 1, 6));
  store.append(sample_of({8, 9}, 0, 2));
  std::vector<int64_t> rows = {5, 6};
  store.cut_into_blocks({.length = 4, .overlap = 2}, rows);
  using Ints = std::vector<int32_t>;
  ASSERT_EQ(store.count(), 4);
  EXPECT_EQ(rows, (std::vector<int64_t>{5, 5, 5, 6}));
  EXPECT_EQ(store.sample(0).ids, (Ints{1, 2, 3, 4}));
  EXPECT_EQ(store.sample(1).ids, (Ints{3, 4, 5, 6}));
  EXPECT_EQ(store.sample(1).labels, (Ints{-100, -100, 5, 6}));
  EXPECT_EQ(store.sample(2).ids, (Ints{5, 6, 7}));
  EXPECT_EQ(store.sample(2).labels, (Ints{-100, -100, 7}));
  EXPECT_EQ(store.sample(3).ids, (Ints{8, 9}));
  EXPECT_EQ(store.raw_tokens(0) + store.raw_tokens(1) + store.raw_tokens(2), 6);
  // With an overlap each token but a document's first is learnt once.
  EXPECT_EQ(store.num_targets(0) + store.num_targets(1) + store.num_targets(2), 6);
  // Nothing is cut where nothing is longer.
  SampleStore fits;
  fits.append(sample_of({1, 2}, 0));
  const uint64_t fingerprint = fits.fingerprint();
  std::vector<int64_t> one = {1};
  fits.cut_into_blocks({.length = 2}, one);
  EXPECT_EQ(fits.fingerprint(), fingerprint);
  EXPECT_FALSE(fits.is_in_blocks());
}

TEST(SampleStore, LeavesOutWhatIsLonger) {
  SampleStore store;
  for (const size_t size : {3U, 5U, 2U}) store.append(sample_of(std::vector<int32_t>(size, 7), 0));
  std::vector<int64_t> rows = {1, 2, 3};
  EXPECT_EQ(store.drop_longer(3, rows), 1);
  EXPECT_EQ(rows, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(store.count(), 2);
  EXPECT_EQ(store.longest(), 3);
}

TEST(SampleStore, KeepsWhereASourceEnds) {
  SampleStore store;
  store.append(source_sample({5, 6, 1}, {7, 1}));
  store.append(source_sample({8}, {9}));
  EXPECT_EQ(store.sample(0).source_tokens, 3);
  EXPECT_EQ(store.sample(1).source_tokens, 1);
  EXPECT_EQ(store.sample(1).labels, (std::vector<int32_t>{-100, 9}));
  SampleStore other;
  other.append(source_sample({5, 6}, {1, 7, 1}));
  other.append(source_sample({8}, {9}));
  EXPECT_NE(store.fingerprint(), other.fingerprint());
}

TEST(SampleStore, KnowsItsLongestSamples) {
  SampleStore store;
  for (const size_t length : {3, 9, 1, 9, 5})
    store.append(sample_of(std::vector<int32_t>(length, 7), 0));
  EXPECT_EQ(store.longest(), 9);
  EXPECT_EQ(store.longest_samples(3), (std::vector<int64_t>{1, 3, 4}));
  EXPECT_EQ(store.longest_samples(7), (std::vector<int64_t>{1, 1, 3, 3, 4, 4, 0}));
}

TEST(SampleStore, KnowsTheMostTargetsOfAnySamples) {
  SampleStore store;
  for (const size_t masked : {4U, 1U, 0U, 3U}) store.append(sample_of({5, 6, 7, 8}, masked));
  EXPECT_EQ(store.most_targets(1), 3);  // the first token is no target
  EXPECT_EQ(store.most_targets(3), 7);
  EXPECT_EQ(store.most_targets(9), 3 * 7);
}

TEST(SampleStore, KnowsWhereLookingForTargetsPays) {
  SampleStore learnt, masked, source;
  learnt.append(sample_of({5, 6, 7, 8, 9}, 1));
  masked.append(sample_of({5, 6, 7, 8, 9}, 3));
  Sample translated = sample_of({5, 6, 7, 8, 9}, 3);
  translated.source_tokens = 3;
  source.append(translated);
  EXPECT_FALSE(learnt.few_targets());
  EXPECT_TRUE(masked.few_targets());
  EXPECT_FALSE(source.few_targets()) << "an encoder's tokens have no logits";
  const std::vector<int64_t> first = {0};
  EXPECT_FALSE(make_micro_batch(learnt, first).picks_rows);
  EXPECT_TRUE(make_micro_batch(masked, first).picks_rows);
  EXPECT_TRUE(make_micro_batch(learnt, first, {.packing = false}).picks_rows) << "padding";
}

TEST(SampleStore, CountsSamplesThatTeachNothing) {
  SampleStore store;
  store.append(sample_of({1, 2, 3}, 3));
  store.append(sample_of({1, 2, 3}, 2));
  store.append(sample_of({1}, 0));  // its only token is never a target
  EXPECT_EQ(store.num_without_loss(), 2);
}

TEST(SampleStore, FingerprintSeesTokensMasksAndBorders) {
  const auto fingerprint = [](const std::vector<Sample>& samples) {
    SampleStore store;
    for (const Sample& sample : samples) store.append(sample);
    return store.fingerprint();
  };
  const uint64_t base = fingerprint({sample_of({1, 2}, 0), sample_of({3}, 0)});
  EXPECT_EQ(base, fingerprint({sample_of({1, 2}, 0), sample_of({3}, 0)}));
  EXPECT_NE(base, fingerprint({sample_of({1}, 0), sample_of({2, 3}, 0)}));
  EXPECT_NE(base, fingerprint({sample_of({1, 2}, 1), sample_of({3}, 0)}));
  EXPECT_NE(base, fingerprint({sample_of({1, 4}, 0), sample_of({3}, 0)}));
}

std::vector<Row> many_rows(size_t count) {
  std::vector<Row> rows;
  for (size_t i = 0; i < count; ++i)
    rows.push_back({"question " + std::to_string(i), "", std::string(i % 17, 'x'), {}});
  return rows;
}

TEST(SampleStore, ThreadsDoNotChangeTheResult) {
  const TextEncoder encoder = byte_encoder(true);
  const PromptStyle style = PromptStyle::make("alpaca", encoder);
  const std::vector<Row> rows = many_rows(2500);
  const SampleOptions options = {.mask_prompt = true, .max_seq_length = 150};
  const SampleStore one = SampleStore::tokenize(rows, style, encoder, options, 0);
  const SampleStore four = SampleStore::tokenize(rows, style, encoder, options, 4);
  EXPECT_EQ(one.count(), 2500);
  EXPECT_GT(one.num_truncated(), 0);
  EXPECT_EQ(one.fingerprint(), four.fingerprint());
  EXPECT_EQ(one.sample(2000).labels, make_sample(rows[2000], style, encoder, options).labels);
}

TEST(SampleStore, NamesTheFirstRowThatFails) {
  TextEncoder encoder = byte_encoder(true);
  const auto bytes = encoder.encode;
  encoder.encode = [bytes](std::string_view text) {
    if (text.find("question 7") != std::string_view::npos) throw UserError("this text is cursed");
    return bytes(text);
  };
  const PromptStyle style = PromptStyle::make("plain", encoder);
  EXPECT_EQ(message_of([&] { SampleStore::tokenize(many_rows(100), style, encoder, {}, 3); }),
            "data row 8: this text is cursed");
}

}  // namespace micro_batch_test
}  // namespace snug::data
