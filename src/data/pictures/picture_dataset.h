// Data sets of pictures with captions: loads them, and makes their micro-batches. Worker threads
// decode and resize the pictures announced by expect(), in order, up to kAheadBytes ahead. The
// sample of an unreadable picture stays in the micro-batch without targets, and is counted.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "data/dataset.h"

namespace snug::data {

class PictureBatchSource : public BatchSource {
 public:
  // If no picture can be read: an error for training data; batches without targets for data that is
  // only evaluated.
  enum class NoneReadable { Refuse, GoOn };

  // Borrows samples and pictures. Without workers the calling thread does the work.
  PictureBatchSource(const SampleStore& samples, const PictureIndex& pictures,
                     const MicroBatchOptions& options, const PictureProcessor& processor,
                     int num_workers, NoneReadable none_readable = NoneReadable::Refuse);
  ~PictureBatchSource() override;

  std::shared_ptr<const MicroBatch> make(std::span<const int64_t> indices) override;
  void expect(const std::vector<std::vector<int64_t>>& micro_batches) override;

  int64_t num_unreadable() const override { return static_cast<int64_t>(unreadable_.size()); }

 private:
  static constexpr size_t kAheadBytes = size_t{64} << 20;

  // A micro-batch whose pictures are being read.
  struct Job {
    std::vector<int64_t> indices;
    std::vector<size_t> offsets;  // in pixels, by sample; behind the last one their size
    std::vector<uint8_t> pixels;
    std::vector<std::string> faults;  // by sample; empty: none
    size_t begun = 0, done = 0;
    std::exception_ptr error;
  };
  using JobPtr = std::shared_ptr<Job>;

  JobPtr new_job(std::span<const int64_t> indices) const;
  JobPtr next_job();  // with an unread picture; null if there is none or kAheadBytes are reached
  void work();
  void run(Job& job, size_t i) const;
  void finish(Job& job, MicroBatch& batch);
  void count_fault(int64_t index, const std::string& fault);

  const SampleStore& samples_;
  const PictureIndex& pictures_;
  MicroBatchOptions options_;
  PictureProcessor processor_;
  size_t picture_bytes_;  // of one of the pictures that a sample has
  NoneReadable none_readable_;
  std::set<int64_t> unreadable_;
  int64_t num_read_ = 0;

  std::mutex mutex_;
  std::condition_variable work_, done_;
  std::deque<JobPtr> jobs_;  // in the order in which they are needed
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

// Samples of rows whose pictures stand among their text; `index` tells where these are.
SampleStore tokenize_with_pictures(std::span<const Row> rows, const PromptStyle& style,
                                   const TextEncoder& encoder, const SampleOptions& options,
                                   const DatasetOptions& data, PictureIndex& index);

// Opens the pictures of a data set; null if it has only text.
std::shared_ptr<const PictureRows> open_pictures(const DatasetOptions& options);

// Fills in everything except prompt_style and its reason.
Dataset load_captions(std::shared_ptr<const PictureRows> pictures, const DatasetOptions& options,
                      const TextEncoder& encoder);

}  // namespace snug::data
