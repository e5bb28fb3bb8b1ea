// The micro-batch that a plan is of: none of the data may have more of anything.
// SPDX-License-Identifier: Apache-2.0
#include "plan/candidate.h"

#include <gtest/gtest.h>

#include <vector>

namespace snug::plan {
namespace {

// `source` tokens for an encoder, then `prompt` tokens without loss and `answer` tokens with it.
data::Sample sample_of(size_t source, size_t prompt, size_t answer) {
  data::Sample sample;
  sample.ids.assign(source + prompt + answer, 7);
  sample.labels.assign(source + prompt, -100);
  sample.labels.resize(sample.ids.size(), 7);
  sample.source_tokens = static_cast<int64_t>(source);
  return sample;
}

data::SampleStore store_of(const std::vector<data::Sample>& samples) {
  data::SampleStore store;
  for (const data::Sample& sample : samples) store.append(sample);
  return store;
}

TEST(Workload, HasAsManyTargetsAsAnyMicroBatch) {
  const data::SampleStore samples =
      store_of({sample_of(0, 30, 2), sample_of(0, 1, 9), sample_of(0, 25, 1), sample_of(0, 1, 5)});
  for (const bool packing : {true, false}) {
    recipe::Recipe recipe;
    recipe.data.packing = packing;
    const data::MicroBatch batch = largest_micro_batch({.samples = samples}, recipe, 2);
    EXPECT_EQ(batch.input_ids.size(), packing ? 32 + 26 : 2 * 32);
    EXPECT_EQ(batch.loss_tokens, 9 + 5);
    EXPECT_TRUE(batch.picks_rows);
  }
}

TEST(Workload, OfAnEncoderAndItsDecoderHasTheLongestOfBoth) {
  const data::SampleStore samples =
      store_of({sample_of(20, 0, 3), sample_of(2, 0, 15), sample_of(18, 0, 2), sample_of(3, 0, 4)});
  const data::Reading reading{.source = true, .decoder_start_token = 0};
  const data::MicroBatch batch =
      largest_micro_batch({.samples = samples, .reading = reading}, recipe::Recipe(), 2);
  EXPECT_EQ(batch.source_ids.size(), 20 + 18);
  EXPECT_EQ(batch.input_ids.size(), 15 + 4);
  EXPECT_EQ(batch.loss_tokens, 15 + 4);
}

// Nothing is made up where one batch has most of everything.
TEST(Workload, IsARealMicroBatchWhereOneIsLargest) {
  const data::SampleStore samples = store_of({sample_of(2, 0, 3), sample_of(9, 0, 8)});
  const data::Reading reading{.source = true, .decoder_start_token = 0};
  const data::MicroBatch batch =
      largest_micro_batch({.samples = samples, .reading = reading}, recipe::Recipe(), 1);
  const std::vector<int64_t> second = {1};
  const data::MicroBatch real = data::make_micro_batch(samples, second, {.reading = reading});
  EXPECT_EQ(batch.input_ids, real.input_ids);
  EXPECT_EQ(batch.targets, real.targets);
  EXPECT_EQ(batch.source_ids, real.source_ids);
}

// Data that nobody has read yet: of masked prompts it is known that they will have no loss.
TEST(Workload, MadeUpSamplesExpectMaskedPrompts) {
  const data::SampleStore samples = store_of({sample_of(0, 1, 19)});
  recipe::Recipe recipe;
  EXPECT_FALSE(largest_micro_batch({.samples = samples, .made_up = true}, recipe, 1).picks_rows);
  recipe.data.mask_prompt = true;
  EXPECT_TRUE(largest_micro_batch({.samples = samples, .made_up = true}, recipe, 1).picks_rows);
  EXPECT_FALSE(largest_micro_batch({.samples = samples}, recipe, 1).picks_rows);
}

// Held out are read in their order, and only those that may take more than training does.
TEST(Workload, HasTheMicroBatchesOfAValidationThatAreLarger) {
  const data::SampleStore samples = store_of({sample_of(0, 0, 20), sample_of(0, 0, 18)});
  const data::SampleStore held_out =
      store_of({sample_of(0, 0, 5), sample_of(0, 0, 5), sample_of(0, 0, 30), sample_of(0, 0, 2),
                sample_of(0, 0, 19), sample_of(0, 0, 21), sample_of(0, 0, 90)});
  const auto tokens = [&](const data::SampleStore* validation, int64_t most_batches) {
    recipe::Recipe recipe;
    recipe.train.micro_batch_size = 2;
    recipe.eval.max_iters = most_batches;
    const Workload work{.samples = samples, .validation = validation};
    std::vector<size_t> found;
    for (const data::MicroBatch& batch :
         larger_of_validation(work, recipe, largest_micro_batch(work, recipe, 2)))
      found.push_back(batch.input_ids.size());
    return found;
  };
  using Sizes = std::vector<size_t>;
  EXPECT_EQ(tokens(&held_out, 1), Sizes{});
  EXPECT_EQ(tokens(&held_out, 2), Sizes{32}) << "the longest sample, of fewer tokens";
  EXPECT_EQ(tokens(&held_out, 3), (Sizes{40, 32}));
  EXPECT_EQ(tokens(&held_out, 0), Sizes{90});
  EXPECT_EQ(tokens(nullptr, 0), Sizes{});
}

// Pictures take more than the tokens that stand for them.
TEST(Workload, HasTheValidationsMicroBatchWithMostPictures) {
  const auto with_pictures = [](int64_t tokens, int64_t pictures) {
    data::Sample sample = sample_of(0, 0, tokens);
    sample.num_pictures = pictures;
    return sample;
  };
  const data::SampleStore samples = store_of({with_pictures(20, 1), with_pictures(20, 1)});
  const data::SampleStore held_out =
      store_of({with_pictures(30, 0), with_pictures(5, 3), with_pictures(25, 2)});
  recipe::Recipe recipe;
  recipe.train.micro_batch_size = 1;
  const data::Reading reading{
      .image_size = 2, .num_picture_tokens = 1, .picture_token = 7, .pictures_anywhere = true};
  const Workload work{.samples = samples, .reading = reading, .validation = &held_out};
  std::vector<int64_t> found;
  for (const data::MicroBatch& batch :
       larger_of_validation(work, recipe, largest_micro_batch(work, recipe, 1)))
    found.push_back(batch.num_pictures);
  EXPECT_EQ(found, (std::vector<int64_t>{0, 3}));
}

}  // namespace
}  // namespace snug::plan
