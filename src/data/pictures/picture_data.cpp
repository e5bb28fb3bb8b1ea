// SPDX-License-Identifier: Apache-2.0
#include "data/pictures/picture_data.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/pictures/picture_folder.h"
#include "data/rows/hugging_face.h"
#include "data/split.h"

namespace snug::data {
namespace {

constexpr size_t kShownRows = 16;

SampleStore empty_store(int32_t ignore_index) {
  return SampleStore::build(0, ignore_index, nullptr, 0);
}

// Samples of rows in ascending order, as files are read best.
class Captions {
 public:
  Captions(const PictureRows& pictures, const DatasetOptions& options, const TextEncoder& encoder,
           std::vector<int64_t> rows)
      : samples_(empty_store(options.ignore_index)) {
    std::sort(rows.begin(), rows.end());
    const SampleOptions sample_options = {.ignore_index = options.ignore_index,
                                          .max_seq_length = options.max_seq_length,
                                          .reading = options.reading};
    constexpr size_t kBlock = 4096;
    for (size_t begin = 0; begin < rows.size(); begin += kBlock) {
      const auto block = std::span(rows).subspan(begin, std::min(kBlock, rows.size() - begin));
      add(
          block, pictures,
          [&](const std::string& caption) {
            return make_caption_sample(options.prompt, caption, encoder, sample_options);
          },
          options);
    }
    if (samples_.empty()) throw UserError("{}: no row has a caption", pictures.where(rows.front()));
    if (num_blank_ > 0)
      warn("{} of {} pictures have no caption and are left out", with_commas(num_blank_),
           with_commas(std::ssize(rows)));
    if (num_cut_ > 0)
      warn(
          "{} of {} captions are longer than the {} tokens that a caption takes, and were cut "
          "there; "
          "--train.max_seq_length says how long picture and text may be together",
          with_commas(num_cut_), with_commas(std::ssize(rows)),
          (options.max_seq_length > 0 ? options.max_seq_length
                                      : options.reading.num_picture_tokens + kCaptionTokens) -
              options.reading.num_picture_tokens);
  }

  bool has(int64_t row) const { return sample_of_.contains(row); }

  void append_to(SampleStore& store, PictureIndex& index, int64_t row) const {
    store.append(samples_.sample(sample_of_.at(row)));
    index.row_of.push_back(row);
  }

 private:
  template <class Make>
  void add(std::span<const int64_t> rows, const PictureRows& pictures, const Make& make,
           const DatasetOptions& options) {
    const auto captions = pictures.captions(rows);
    const auto sample_at = [&](int64_t i) {
      const auto& caption = captions[static_cast<size_t>(i)];
      return caption ? make(*caption) : Sample();
    };
    const SampleStore block =
        SampleStore::build(std::ssize(rows), options.ignore_index, sample_at, options.num_workers);
    num_cut_ += block.num_truncated();
    for (int64_t i = 0; i < block.count(); ++i) {
      if (block.length(i) == 0) {
        ++num_blank_;
        continue;
      }
      sample_of_[rows[static_cast<size_t>(i)]] = samples_.count();
      samples_.append(block.sample(i));
    }
  }

  SampleStore samples_;
  std::unordered_map<int64_t, int64_t> sample_of_;
  int64_t num_blank_ = 0, num_cut_ = 0;
};

}  // namespace

std::shared_ptr<const PictureRows> open_pictures(const DatasetOptions& options) {
  const bool reads_pictures = options.reading.image_size > 0;
  if (options.name == "ImageFolder") {
    if (!reads_pictures)
      throw UserError(
          "--data ImageFolder holds pictures, but this model reads none; take a model such as "
          "BLIP-2, or data of text");
    return open_picture_folder(
        {options.path, options.split, options.image_column, options.text_column});
  }
  if (!reads_pictures) return nullptr;
  return open_hugging_face_pictures(
      {options.path, options.split, options.image_column, options.text_column});
}

Dataset load_captions(std::shared_ptr<const PictureRows> pictures, const DatasetOptions& options,
                      const TextEncoder& encoder) {
  std::vector<int64_t> rows = choose_rows(pictures->count(), options.max_samples, options.seed);
  const Captions captions(*pictures, options, encoder, rows);
  // What has no caption is neither trained on nor held out, so it counts in neither part.
  std::erase_if(rows, [&](int64_t row) { return !captions.has(row); });
  const double fraction = options.val_split_fraction.value_or(rows.size() > 1 ? kUsualHeldOut : 0);
  const auto held_out =
      static_cast<size_t>(validation_rows(std::ssize(rows), fraction, SplitRounding::Down));
  Dataset dataset{.train = empty_store(options.ignore_index),
                  .validation = empty_store(options.ignore_index),
                  .batch_options = batch_options(options, options.reading, encoder.pad),
                  .processor = options.processor,
                  .num_workers = options.num_workers};
  dataset.train_pictures.rows = dataset.validation_pictures.rows = pictures;
  for (size_t i = 0; i < rows.size(); ++i)
    if (i < held_out)
      captions.append_to(dataset.validation, dataset.validation_pictures, rows[i]);
    else
      captions.append_to(dataset.train, dataset.train_pictures, rows[i]);
  if (dataset.train.empty())
    throw UserError("{}: no row with a caption is left to train on", pictures->where(0));
  const std::vector<int64_t>& validation = dataset.validation_pictures.row_of;
  for (size_t i = 0; i < std::min(kShownRows, validation.size()); ++i) {
    const auto caption = pictures->captions({&validation[i], 1}).front();
    dataset.validation_rows.push_back({options.prompt, "", caption.value_or(""), {}});
  }
  return dataset;
}

}  // namespace snug::data
