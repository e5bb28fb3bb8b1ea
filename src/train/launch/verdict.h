// Decides from the records of all ranks why a run ended: one message, one exit code. When one rank
// fails, the others lose it or are ended because of it, so most records are consequences.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/launch/rank_record.h"

namespace snug::launch {

using Records = std::vector<std::optional<RankRecord>>;  // by rank; empty: no record yet

struct Verdict {
  int exit_code = 0;
  std::string message;      // empty if the run succeeded
  std::optional<int> rank;  // the one that failed; empty if several failed alike
  bool out_of_memory = false;
};

// This program's exit code for a record: 0, 1, 2 or 3.
int exit_code_of(const RankRecord& record);

bool any_failed(const Records& records);
bool all_done(const Records& records);

// The message names the logs and checkpoints in `out_dir`. `stop_wanted`: the user asked all ranks
// to stop, so that ending by a signal is not a failure.
Verdict judge(const Records& records, const std::filesystem::path& out_dir, bool stop_wanted);

// For a run whose processes could not be started, or ended without leaving a record.
Verdict judge_silent_end(const std::string& reason, int exit_code,
                         const std::filesystem::path& out_dir);

// Writes the outcome into run.json if rank 0 could not.
class RunJson {
 public:
  explicit RunJson(const std::filesystem::path& out_dir);
  // Sets outcome and reason, if this run wrote run.json and its outcome differs from the verdict.
  void amend(const Verdict& verdict) const;

 private:
  std::filesystem::path path_;
  std::filesystem::file_time_type before_;
};

// Watches the records of all ranks, a few times a second.

// Time while this process is not suspended: a process that was suspended with all the others must
// not conclude that they are late.
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

  // Reads changed records, if the last look was long enough ago.
  void look();
  void look_now();
  const Records& records() const { return records_; }

  // A rank failed, and others that failed with it have had time to record it.
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
