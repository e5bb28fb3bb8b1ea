// SPDX-License-Identifier: Apache-2.0
#include "data/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "data/document_sample.h"
#include "data/mismatched.h"
#include "data/random.h"
#include "data/sampler.h"
#include "files/pictures/picture.h"

namespace snug::data {
namespace {

// Purposes for derive(); samples use the numbers from kFirstSample on.
enum Purpose : uint64_t { kSymbols = 0, kFirstBranch = 16, kFirstSample = 1024 };

constexpr int64_t kMostSymbols = 256;

// The branch that three random bits choose.
constexpr std::array<uint8_t, 8> kBranchOf = {0, 0, 0, 0, 1, 1, 2, 3};
constexpr int kNumBranches = 4;

// Writes the picture's shape and colour as the caption's first two ids.
void tell_picture(Sample& sample, const SyntheticPicture& picture, const SyntheticRule& rule,
                  int64_t first) {
  const int64_t symbols[] = {picture.colour, SyntheticPicture::kColours + picture.shape};
  for (const int64_t symbol : symbols) {
    if (first >= std::ssize(sample.ids)) return;
    const auto at = static_cast<size_t>(first++);
    sample.ids[at] = sample.labels[at] = rule.id(symbol % rule.num_symbols());
  }
}

Sample make_sample(const SyntheticRule& rule, int64_t index, const DatasetOptions& options) {
  SplitMix random = derive(options.seed, kFirstSample + static_cast<uint64_t>(index));
  auto symbol = static_cast<int64_t>(random.below(static_cast<uint64_t>(rule.num_symbols())));
  const Reading& reading = options.reading;
  Sample sample = full_length_sample(options.max_seq_length, reading, [&] {
    symbol = rule.draw_successor(symbol, random);
    return rule.id(symbol);
  });
  if (reading.image_size > 0)
    tell_picture(
        sample, synthetic_picture(index), rule,
        reading.source ? sample.source_tokens : sample.num_pictures * reading.num_picture_tokens);
  sample.raw_tokens = std::ssize(sample.ids);
  return sample;
}

// A document's label is that of its last token; pairs have no margins.
void score(SampleStore& samples, const DatasetOptions& options) {
  const auto num_labels = static_cast<int64_t>(std::max<size_t>(1, options.labels.size()));
  std::vector<int64_t> numbers;
  std::unordered_map<int64_t, double> values;
  for (int64_t i = 0; i < samples.num_different(); ++i) {
    const int32_t last = samples.stored_ids(i).back();
    numbers.push_back(i);
    values[i] =
        options.preferences ? 0 : static_cast<double>((last < 0 ? ~last : last) % num_labels);
  }
  add_score_columns(samples, numbers, values, options.reading.pad_token);
}

}  // namespace

SyntheticRule::SyntheticRule(int64_t vocabulary, const Reading& reading, uint64_t seed) {
  // A quarter of a small vocabulary, so that training can also learn which tokens occur.
  const int64_t wanted = std::clamp<int64_t>(vocabulary / 4, 2, kMostSymbols);
  for (const int64_t id : permutation(vocabulary, derive(seed, kSymbols)))
    if (num_symbols() < wanted && id != reading.picture_token)
      ids_.push_back(static_cast<int32_t>(id));
  // Permutations: all symbols occur equally often.
  for (uint64_t branch = 0; branch < kNumBranches; ++branch)
    branches_.push_back(permutation(num_symbols(), derive(seed, kFirstBranch + branch)));
}

int64_t SyntheticRule::draw_successor(int64_t symbol, SplitMix& random) const {
  const size_t branch = kBranchOf[random.next() >> 61];
  return branches_[branch][static_cast<size_t>(symbol)];
}

Sample full_length_sample(int64_t length, const Reading& reading,
                          const std::function<int32_t()>& next) {
  Sample sample;
  const int32_t ignored = SampleOptions().ignore_index;
  // As many as leave a token to learn.
  if (reading.image_size > 0)
    sample.num_pictures =
        std::min(reading.usual_pictures, (length - 1) / reading.num_picture_tokens);
  const int64_t places = sample.num_pictures * reading.num_picture_tokens;
  const auto add = [&](int64_t count, bool is_learnt) {
    for (int64_t i = 0; i < count; ++i) {
      sample.ids.push_back(next());
      sample.labels.push_back(is_learnt ? sample.ids.back() : ignored);
    }
  };
  sample.ids.assign(static_cast<size_t>(places), reading.picture_token);
  sample.labels.assign(static_cast<size_t>(places), ignored);
  if (reading.source) {
    add(places > 0 ? 1 : length, false);  // the prompt is only the end of sequence
    sample.source_tokens = std::ssize(sample.ids);
  }
  add(length - places, true);
  return sample;
}

SyntheticPicture synthetic_picture(int64_t index) {
  return {.colour = index % SyntheticPicture::kColours,
          .shape = index / SyntheticPicture::kColours % SyntheticPicture::kShapes};
}

namespace {

// Every other sample is a good answer. Returns their prompts with answers to others.
SampleStore add_ratings(SampleStore& samples, const DatasetOptions& options) {
  if (samples.empty()) return {};
  ColumnOfNumbers labels;
  for (int64_t i = 0; i < samples.num_different(); ++i) labels.values.push_back(i % 2 == 0 ? 1 : 0);
  samples.set_columns({std::move(labels)});
  return mismatched(samples, mismatch(samples), options.max_seq_length);
}

}  // namespace

Dataset load_synthetic(const DatasetOptions& options) {
  SNUG_CHECK(options.max_seq_length > 0 && options.vocabulary > 1,
             "Synthetic data of {} tokens of a vocabulary of {}", options.max_seq_length,
             options.vocabulary);
  const int64_t num_samples = options.max_samples.value_or(kSyntheticSamples);
  if (num_samples > kMostSyntheticSamples)
    throw UserError("data.max_samples = {}: Synthetic makes at most {} samples", num_samples,
                    kMostSyntheticSamples);
  const SyntheticRule rule(options.vocabulary, options.reading, options.seed);
  const int64_t held_out =
      validation_rows(num_samples, options.val_split_fraction.value_or(0), SplitRounding::Down);
  // Beyond this many tokens samples repeat.
  constexpr int64_t kDifferentTokens = int64_t{1} << 22;
  const int64_t documents = options.preferences ? 2 : 1;
  const int64_t different =
      std::max<int64_t>(1, kDifferentTokens / options.max_seq_length / documents);
  const auto build = [&](int64_t first, int64_t count) {
    SampleStore store = SampleStore::build_groups(
        std::min(count, different), documents, options.ignore_index,
        [&](int64_t i) {
          std::vector<Sample> samples;
          for (int64_t d = 0; d < documents; ++d) {
            Sample& sample =
                samples.emplace_back(make_sample(rule, (first + i) * documents + d, options));
            std::ranges::replace(sample.labels, SampleOptions().ignore_index, options.ignore_index);
          }
          return samples;
        },
        options.num_workers);
    if (count > different) store.repeat_to(count);
    return store;
  };
  Dataset dataset;
  dataset.validation = build(0, held_out);
  dataset.train = build(held_out, num_samples - held_out);
  if (options.ratings) {
    dataset.train_others = add_ratings(dataset.train, options);
    dataset.validation_others = add_ratings(dataset.validation, options);
  }
  dataset.batch_options = batch_options(options, options.reading, /*pad=*/0);
  dataset.processor = options.processor;
  dataset.num_workers = options.num_workers;
  dataset.prompt_style = "none";
  if (options.reading.scores_documents) {
    score(dataset.train, options);
    score(dataset.validation, options);
  }
  if (options.reading.image_size > 0) {
    const auto pictures =
        std::make_shared<SyntheticPictures>(num_samples, options.reading.image_size);
    for (int64_t i = 0; i < num_samples; ++i)
      (i < held_out ? dataset.validation_pictures : dataset.train_pictures).row_of.push_back(i);
    dataset.train_pictures.rows = dataset.validation_pictures.rows = pictures;
  }
  return dataset;
}

namespace {

using Colour = std::array<uint8_t, 3>;

constexpr Colour kColours[SyntheticPicture::kColours] = {
    {220, 40, 40},  {40, 170, 60},  {50, 80, 220},  {235, 200, 40},
    {150, 60, 190}, {40, 190, 200}, {240, 130, 30}, {245, 245, 245}};

// Whether a point belongs to a shape of half-width `reach` around the origin: a square, a disc, a
// diamond, a cross.
bool covers(int64_t shape, int64_t x, int64_t y, int64_t reach) {
  const int64_t across = std::abs(x), down = std::abs(y);
  switch (shape) {
    case 0:
      return std::max(across, down) <= reach;
    case 1:
      return x * x + y * y <= reach * reach;
    case 2:
      return across + down <= reach;
    default:
      return std::min(across, down) <= reach / 3 && std::max(across, down) <= reach;
  }
}

}  // namespace

std::vector<std::optional<std::string>> SyntheticPictures::captions(
    std::span<const int64_t> rows) const {
  return std::vector<std::optional<std::string>>(rows.size());
}

PictureBytes SyntheticPictures::picture(int64_t row) const {
  const SyntheticPicture what = synthetic_picture(row);
  SplitMix random(static_cast<uint64_t>(row));
  const int64_t reach = std::max<int64_t>(1, size_ / 4);
  const auto somewhere = [&] {  // a random position with the whole shape inside the picture
    return reach + static_cast<int64_t>(random.below(
                       static_cast<uint64_t>(std::max<int64_t>(1, size_ - 2 * reach))));
  };
  const int64_t centre_x = somewhere(), centre_y = somewhere();
  files::Picture picture{.width = size_, .height = size_, .rgb = {}};
  picture.rgb.reserve(static_cast<size_t>(size_ * size_ * 3));
  for (int64_t y = 0; y < size_; ++y)
    for (int64_t x = 0; x < size_; ++x) {
      const auto shade = static_cast<uint8_t>(90 * (x + y) / (2 * size_));
      const Colour colour = covers(what.shape, x - centre_x, y - centre_y, reach)
                                ? kColours[what.colour]
                                : Colour{shade, shade, shade};
      picture.rgb.insert(picture.rgb.end(), colour.begin(), colour.end());
    }
  const auto bytes = std::make_shared<std::vector<std::byte>>(files::encode_png(picture));
  return {.bytes = *bytes, .owner = bytes};
}

std::string SyntheticPictures::where(int64_t row) const {
  return fmt::format("synthetic picture {}", row);
}

}  // namespace snug::data
