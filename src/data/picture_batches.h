// Micro-batches with pictures. Worker threads decode and resize those that are told by expect(), a
// picture at a time and in their order, as far ahead as kAheadBytes allow. A picture that cannot be
// read teaches nothing: its sample stays in the micro-batch, without targets, and is counted.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "data/dataset.h"

namespace snug::data {

class PictureBatchSource : public BatchSource {
 public:
  // Where none can be read at all: an error for what is trained on, which nobody would miss to hear
  // of; batches without targets for what is only looked at.
  enum class NoneReadable { Refuse, GoOn };

  // Borrows samples and pictures. Without workers the caller does the work.
  PictureBatchSource(const SampleStore& samples, const PictureIndex& pictures,
                     const MicroBatchOptions& options, const PictureProcessor& processor,
                     int num_workers, NoneReadable none_readable = NoneReadable::Refuse);
  ~PictureBatchSource() override;

  MicroBatch make(std::span<const int64_t> indices) override;
  void expect(const std::vector<std::vector<int64_t>>& micro_batches) override;

  int64_t num_unreadable() const override { return static_cast<int64_t>(unreadable_.size()); }

 private:
  static constexpr size_t kAheadBytes = size_t{64} << 20;

  // One micro-batch's pictures on their way.
  struct Job {
    std::vector<int64_t> indices;
    std::vector<uint8_t> pixels;
    std::vector<std::string> faults;  // by picture; "": none
    size_t begun = 0, done = 0;
    std::exception_ptr error;
  };
  using JobPtr = std::shared_ptr<Job>;

  JobPtr new_job(std::span<const int64_t> indices) const;
  JobPtr next_job();  // with a picture not yet begun; null where all are, or as far as memory goes
  void work();
  void run(Job& job, size_t i) const;
  void finish(Job& job, MicroBatch& batch);
  void count_fault(int64_t index, const std::string& fault);

  const SampleStore& samples_;
  const PictureIndex& pictures_;
  MicroBatchOptions options_;
  PictureProcessor processor_;
  size_t picture_bytes_;
  NoneReadable none_readable_;
  std::set<int64_t> unreadable_;
  int64_t num_read_ = 0;

  std::mutex mutex_;
  std::condition_variable work_, done_;
  std::deque<JobPtr> jobs_;  // in the order in which they are wanted
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace snug::data
