// SPDX-License-Identifier: Apache-2.0
#include "data/pictures/picture_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/pictures/picture_folder.h"
#include "data/pictures/picture_sample.h"
#include "data/rows/hugging_face.h"
#include "data/sampler.h"
#include "files/pictures/picture.h"

namespace snug::data {
namespace {

constexpr int64_t kNamedFaults = 3;
constexpr int64_t kHopeless = 16;  // so many unreadable ones, and none that is readable

}  // namespace

PictureBatchSource::PictureBatchSource(const SampleStore& samples, const PictureIndex& pictures,
                                       const MicroBatchOptions& options,
                                       const PictureProcessor& processor, int num_workers,
                                       NoneReadable none_readable)
    : samples_(samples),
      pictures_(pictures),
      options_(options),
      processor_(processor),
      picture_bytes_(static_cast<size_t>(processor.size * processor.size * 3)),
      none_readable_(none_readable) {
  const int64_t indexed =
      pictures.first.empty() ? std::ssize(pictures.row_of) : std::ssize(pictures.first) - 1;
  SNUG_CHECK(indexed == samples.count(), "pictures of {} of {} samples", indexed, samples.count());
  SNUG_CHECK(processor.size == options.reading.image_size, "pictures of {} and of {}",
             processor.size, options.reading.image_size);
  for (int i = 0; i < num_workers; ++i) workers_.emplace_back([this] { work(); });
}

PictureBatchSource::~PictureBatchSource() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  if (num_unreadable() > kNamedFaults)
    warn("{} pictures could not be read and were skipped", num_unreadable());
}

PictureBatchSource::JobPtr PictureBatchSource::new_job(std::span<const int64_t> indices) const {
  auto job = std::make_shared<Job>();
  job->indices.assign(indices.begin(), indices.end());
  job->offsets.push_back(0);
  for (const int64_t index : indices)
    job->offsets.push_back(job->offsets.back() +
                           static_cast<size_t>(samples_.num_pictures(index)) * picture_bytes_);
  return job;
}

PictureBatchSource::JobPtr PictureBatchSource::next_job() {
  size_t bytes = 0;
  for (const JobPtr& job : jobs_) {
    if (bytes > kAheadBytes) return nullptr;
    bytes += job->offsets.back();
    if (job->begun == job->indices.size()) continue;
    if (!job->pixels.empty()) return job;
    try {
      job->faults.resize(job->indices.size());
      job->pixels.resize(job->offsets.back());
      return job;
    } catch (...) {  // no memory: make() says so
      job->error = std::current_exception();
      job->begun = job->done = job->indices.size();
      done_.notify_all();
    }
  }
  return nullptr;
}

void PictureBatchSource::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    JobPtr job;
    work_.wait(lock, [&] { return stop_ || (job = next_job()) != nullptr; });
    if (stop_) return;
    const size_t i = job->begun++;
    lock.unlock();
    std::exception_ptr error;
    try {
      run(*job, i);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && !job->error) job->error = error;
    if (++job->done == job->indices.size()) done_.notify_all();
  }
}

// The pictures of sample i of a job. What is wrong with a picture itself is noted; anything else
// is thrown.
void PictureBatchSource::run(Job& job, size_t i) const {
  const std::span<uint8_t> out(job.pixels.data() + job.offsets[i],
                               job.offsets[i + 1] - job.offsets[i]);
  try {
    size_t at = 0;
    for (const int64_t row : pictures_.rows_of(job.indices[i])) {
      const PictureBytes picture = pictures_.rows->picture(row);
      const std::string where = pictures_.rows->where(row);
      const PreparedPicture prepared = processor_.prepare(picture.bytes, where);
      if (prepared.pixels.size() > out.size() - at)
        throw UserError("{}: the picture has {} tiles, more than its sample has places for ({})",
                        where, prepared.grid.num_pictures(), samples_.num_pictures(job.indices[i]));
      std::ranges::copy(prepared.pixels, out.subspan(at).begin());
      at += prepared.pixels.size();
    }
    if (at != out.size())
      throw UserError("sample {}: its pictures have fewer tiles than it has places for ({})",
                      job.indices[i] + 1, samples_.num_pictures(job.indices[i]));
  } catch (const UserError& error) {
    std::ranges::fill(out, uint8_t{0});
    job.faults[i] = error.what();
  }
}

std::shared_ptr<const MicroBatch> PictureBatchSource::make(std::span<const int64_t> indices) {
  JobPtr job;
  {
    std::unique_lock lock(mutex_);
    const auto found = std::find_if(jobs_.begin(), jobs_.end(), [&](const JobPtr& candidate) {
      return std::ranges::equal(candidate->indices, indices);
    });
    job = found == jobs_.end() ? new_job(indices) : *found;
    if (found != jobs_.end()) jobs_.erase(found);
    jobs_.push_front(job);  // now it is wanted first
    if (workers_.empty()) next_job();
    work_.notify_all();
    if (!workers_.empty()) done_.wait(lock, [&] { return job->done == job->indices.size(); });
    jobs_.erase(std::find(jobs_.begin(), jobs_.end(), job));
  }
  work_.notify_all();  // there is room for another
  if (job->error) std::rethrow_exception(job->error);
  if (workers_.empty())
    for (size_t i = 0; i < job->indices.size(); ++i) run(*job, i);
  MicroBatch batch = make_micro_batch(samples_, indices, options_);
  finish(*job, batch);
  return std::make_shared<const MicroBatch>(std::move(batch));
}

void PictureBatchSource::expect(const std::vector<std::vector<int64_t>>& micro_batches) {
  const std::lock_guard lock(mutex_);
  std::deque<JobPtr> before;
  before.swap(jobs_);
  for (const std::vector<int64_t>& indices : micro_batches) {
    if (indices.empty()) continue;
    // What is under way is not begun again.
    const auto found = std::find_if(before.begin(), before.end(), [&](const JobPtr& candidate) {
      return candidate->indices == indices;
    });
    jobs_.push_back(found == before.end() ? new_job(indices) : *found);
    if (found != before.end()) before.erase(found);
  }
  if (!workers_.empty()) work_.notify_all();
}

void PictureBatchSource::finish(Job& job, MicroBatch& batch) {
  SNUG_CHECK(std::ssize(batch.cu_seqlens) == std::ssize(job.indices) + 1,
             "{} documents of {} samples with pictures", std::ssize(batch.cu_seqlens) - 1,
             job.indices.size());
  for (size_t i = 0; i < job.indices.size(); ++i) {
    if (job.faults[i].empty()) {
      ++num_read_;
      continue;
    }
    for (int32_t at = batch.cu_seqlens[i]; at < batch.cu_seqlens[i + 1]; ++at) {
      batch.loss_tokens -= batch.targets[at] != options_.ignore_index;
      batch.targets[at] = options_.ignore_index;
    }
    count_fault(job.indices[i], job.faults[i]);
  }
  batch.pixels = std::move(job.pixels);
}

void PictureBatchSource::count_fault(int64_t index, const std::string& fault) {
  if (!unreadable_.insert(index).second) return;
  const bool refuses = none_readable_ == NoneReadable::Refuse;
  if (refuses && num_read_ == 0 && num_unreadable() >= std::min(kHopeless, samples_.count()))
    throw UserError("none of {} pictures could be read; the last: {}", num_unreadable(), fault);
  if (num_unreadable() <= kNamedFaults) warn("left out: {}", fault);
  if (num_unreadable() == kNamedFaults + 1)
    warn("more pictures cannot be read; they are skipped and counted");
}

namespace {

SampleStore empty_store(int32_t ignore_index) {
  return SampleStore::build(0, ignore_index, nullptr, 0);
}

// The tiles of a row's picture. One that cannot be read has none: its micro-batch says so.
Grid grid_of(const PictureRows& pictures, int64_t row, const PictureProcessor& processor) {
  if (!processor.cuts) return {};
  try {
    const PictureBytes encoded = pictures.picture(row);
    const files::Picture picture = files::decode_picture(encoded.bytes, pictures.where(row));
    return processor.grid({picture.width, picture.height});
  } catch (const UserError&) {
    return {};
  }
}

std::string room_for_caption(const DatasetOptions& options) {
  if (options.max_seq_length <= 0) return fmt::format("{} tokens", kCaptionTokens);
  if (options.reading.pictures_anywhere)
    return fmt::format("{} tokens beside picture and prompt", options.max_seq_length);
  return fmt::format("{} tokens", options.max_seq_length - options.reading.num_picture_tokens);
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
    const PromptStyle style =
        PromptStyle::make(options.prompt_style.empty() ? "plain" : options.prompt_style, encoder);
    constexpr size_t kBlock = 4096;
    for (size_t begin = 0; begin < rows.size(); begin += kBlock) {
      const auto block = std::span(rows).subspan(begin, std::min(kBlock, rows.size() - begin));
      add(
          block, pictures,
          [&](int64_t row, const std::string& caption) {
            if (!options.reading.pictures_anywhere)
              return make_caption_sample(options.prompt, caption, encoder, sample_options);
            const Grid grid = grid_of(pictures, row, options.processor);
            try {
              return make_picture_sample(options.prompt, caption, grid, style, encoder,
                                         sample_options);
            } catch (const UserError& error) {
              throw UserError("{}: {}", pictures.where(row), error.what());
            }
          },
          options);
    }
    if (samples_.empty()) throw UserError("{}: no row has a caption", pictures.where(rows.front()));
    if (num_blank_ > 0)
      warn("{} of {} pictures have no caption and are skipped", with_commas(num_blank_),
           with_commas(std::ssize(rows)));
    if (num_cut_ > 0)
      warn(
          "{} of {} captions are longer than the {} that a caption takes, and were cut there; "
          "--train.max_seq_length says how long picture and text may be together",
          with_commas(num_cut_), with_commas(std::ssize(rows)), room_for_caption(options));
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
      return caption ? make(rows[static_cast<size_t>(i)], *caption) : Sample();
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

SampleStore tokenize_with_pictures(std::span<const Row> rows, const PromptStyle& style,
                                   const TextEncoder& encoder, const SampleOptions& options,
                                   const DatasetOptions& data, PictureIndex& index) {
  std::vector<std::filesystem::path> files;
  index.first = {0};
  for (const Row& row : rows) {
    files.insert(files.end(), row.pictures.begin(), row.pictures.end());
    index.first.push_back(std::ssize(files));
  }
  for (int64_t i = 0; i < std::ssize(files); ++i) index.row_of.push_back(i);
  index.rows = picture_files(std::move(files));
  const auto make = [&](int64_t i) {
    const Row& row = rows[static_cast<size_t>(i)];
    std::vector<Grid> grids;
    for (const int64_t picture : index.rows_of(i))
      grids.push_back(grid_of(*index.rows, picture, data.processor));
    try {
      return make_sample(row, style, encoder, options, grids);
    } catch (const UserError& error) {
      throw UserError("data row {}: {}", row.number, error.what());
    }
  };
  return SampleStore::build(std::ssize(rows), options.ignore_index, make, data.num_workers);
}

std::shared_ptr<const PictureRows> open_pictures(const DatasetOptions& options) {
  const bool reads_pictures = options.reading.image_size > 0;
  if (options.name == "ImageFolder") {
    if (!reads_pictures)
      throw UserError(
          "--data ImageFolder holds pictures, but this model reads none; take a model such as "
          "BLIP-2 or SmolVLM, or data of text");
    return open_picture_folder(
        {options.path, options.split, options.image_column, options.text_column});
  }
  if (!reads_pictures) return nullptr;
  auto pictures = open_hugging_face_pictures({.path = options.path,
                                              .split = options.split,
                                              .subset = options.subset,
                                              .image_column = options.image_column,
                                              .text_column = options.text_column});
  if (pictures != nullptr && !options.val_split.empty())
    throw UserError(
        "data.val_split = {}: of pictures with captions data.val_split_fraction is held out; leave "
        "it out",
        options.val_split);
  return pictures;
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
    dataset.validation_rows.push_back({options.prompt, "", caption.value_or(""), {}, {}});
  }
  return dataset;
}

}  // namespace snug::data
