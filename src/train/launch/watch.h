// Looks at what the keepers of all ranks note, a few times a second.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "train/launch/verdict.h"

namespace snug::launch {

// Time that passes while this process runs: one that was suspended together with all the others
// must not find them late.
class RunningTime {
 public:
  double seconds();

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kLongest = 1;  // between two calls
  Clock::time_point last_ = Clock::now();
  double total_ = 0;
};

class Watch {
 public:
  Watch(std::filesystem::path folder, std::string job, int size);

  // Reads what there is to read, if the last time is long enough ago.
  void look();
  void look_now();
  const Records& records() const { return records_; }

  // Somebody failed, and those who failed along with it have had the time to say so.
  bool is_settled();

 private:
  struct Sign {
    int64_t touched = 0;
    double seen = 0;
  };
  void read(int rank, double now);

  std::filesystem::path folder_;
  std::string job_;
  Records records_;
  std::vector<Sign> signs_;  // by rank
  RunningTime time_;
  double next_look_ = 0;
  double failed_at_ = -1;
};

}  // namespace snug::launch
