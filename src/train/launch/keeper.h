// Each rank runs as the child of a process that does nothing but watch over it: it keeps the rank's
// words in a log, notices when it ends or gives no sign of life, and notes how. What a rank that
// was killed cannot say any more, its keeper says.
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
  // A supervisor (supervisor.h) tells the person how it ended; else rank 0's keeper does.
  bool is_supervised = false;
  std::string terminal;  // size of the person's, "120x40"; empty: none
  // Ends a rank whose status page stands still for so long.
  double silence_seconds = 30;
};

// Forks. In the rank it returns nothing, and the run begins; in its keeper the exit code, when the
// rank is no more.
std::optional<int> keep_rank(const KeeperOptions& options);

// In a rank: how it ends, for whoever tells the person. False in a process that nobody keeps, which
// has to say it itself.
bool tell_keeper(int exit_code, const std::string& text, bool lost_another_rank);

}  // namespace snug::launch
