// SPDX-License-Identifier: Apache-2.0
#include "train/launch/watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace snug::launch {
namespace {

constexpr double kInterval = 0.2;
// Keepers touch their records every few seconds; a machine that does not for so long is gone.
constexpr double kLostMachine = 60;
// A keeper waits as long before it lets go of a rank that failed.
constexpr double kSettling = 0.4;

}  // namespace

double RunningTime::seconds() {
  const Clock::time_point now = Clock::now();
  total_ += std::min(kLongest, std::chrono::duration<double>(now - last_).count());
  last_ = now;
  return total_;
}

Watch::Watch(std::filesystem::path folder, std::string job, int size)
    : folder_(std::move(folder)),
      job_(std::move(job)),
      records_(static_cast<size_t>(size)),
      signs_(static_cast<size_t>(size)) {}

void Watch::look() {
  if (time_.seconds() >= next_look_) look_now();
}

void Watch::look_now() {
  const double now = time_.seconds();
  for (size_t rank = 0; rank < records_.size(); ++rank) read(static_cast<int>(rank), now);
  // Thousands of ranks must not keep a network's disk busy.
  next_look_ = now + kInterval + 0.002 * static_cast<double>(records_.size());
  if (failed_at_ < 0 && any_failed(records_)) failed_at_ = now;
}

void Watch::read(int rank, double now) {
  std::optional<RankRecord>& record = records_[static_cast<size_t>(rank)];
  if (record && record->ending != Ending::Running) return;
  const int64_t touched = touched_at(folder_, rank);
  if (touched == 0) return;
  Sign& sign = signs_[static_cast<size_t>(rank)];
  if (touched != sign.touched) {
    sign = {.touched = touched, .seen = now};
    if (auto read = read_record(folder_, rank, job_)) record = std::move(read);
  } else if (record && now - sign.seen > kLostMachine) {
    record->ending = Ending::Silent;
    record->text = fmt::format("has not responded for {:.0f} s", kLostMachine);
  }
}

bool Watch::is_settled() { return failed_at_ >= 0 && time_.seconds() - failed_at_ >= kSettling; }

}  // namespace snug::launch
