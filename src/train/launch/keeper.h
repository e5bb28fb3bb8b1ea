// Each rank runs as the child of a keeper, a process that writes the rank's output to a log and
// records when and how the rank ends or stops responding. So even the end of a killed rank is
// recorded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "train/launch/rank_record.h"

namespace snug::launch {

struct KeeperOptions {
  std::string out_dir;
  std::string job;
  int rank = 0;
  int size = 1;
  // A supervisor (supervisor.h) tells the user how the run ended; otherwise rank 0's keeper does.
  bool is_supervised = false;
  std::string terminal;  // size of the user's terminal, "120x40"; empty: none
  // A rank whose status page does not change for this long is killed.
  double silence_seconds = 30;
};

// Forks. Returns nothing in the rank, where the run starts; in the keeper, returns the exit code
// when the rank has ended.
std::optional<int> keep_rank(const KeeperOptions& options);

// In a rank: reports its end to its keeper. False if the process has no keeper and must print its
// error itself.
bool tell_keeper(int exit_code, const std::string& text, bool lost_another_rank);

}  // namespace snug::launch
