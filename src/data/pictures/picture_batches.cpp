// SPDX-License-Identifier: Apache-2.0
#include "data/pictures/picture_batches.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"

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
  SNUG_CHECK(std::ssize(pictures.row_of) == samples.count(), "{} pictures of {} samples",
             pictures.row_of.size(), samples.count());
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
    warn("{} pictures could not be read and taught nothing", num_unreadable());
}

PictureBatchSource::JobPtr PictureBatchSource::new_job(std::span<const int64_t> indices) const {
  auto job = std::make_shared<Job>();
  job->indices.assign(indices.begin(), indices.end());
  return job;
}

PictureBatchSource::JobPtr PictureBatchSource::next_job() {
  size_t bytes = 0;
  for (const JobPtr& job : jobs_) {
    if (bytes > kAheadBytes) return nullptr;
    bytes += job->indices.size() * picture_bytes_;
    if (job->begun == job->indices.size()) continue;
    if (!job->pixels.empty()) return job;
    try {
      job->faults.resize(job->indices.size());
      job->pixels.resize(job->indices.size() * picture_bytes_);
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

// Picture i of a job. What is wrong with the picture itself is noted; anything else is thrown.
void PictureBatchSource::run(Job& job, size_t i) const {
  const int64_t row = pictures_.row_of[static_cast<size_t>(job.indices[i])];
  uint8_t* out = job.pixels.data() + i * picture_bytes_;
  try {
    const PictureBytes picture = pictures_.rows->picture(row);
    processor_.process(picture.bytes, pictures_.rows->where(row), out);
  } catch (const UserError& error) {
    std::fill_n(out, picture_bytes_, uint8_t{0});
    job.faults[i] = error.what();
  }
}

MicroBatch PictureBatchSource::make(std::span<const int64_t> indices) {
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
  return batch;
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
    warn("more pictures cannot be read; they are left out and counted");
}

}  // namespace snug::data
