// Follows the run in a folder: a run's out_dir, a suite's folder (its newest row is followed), or a
// folder with runs somewhere below it. Folders may change while they are read; those that vanish
// are skipped.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "watch/monitor/look.h"

namespace snug::monitor {

class Follow {
 public:
  // An empty `run` means the newest run below `newest_below`. Throws UserError if there is nothing
  // to follow; a folder that exists but has no run yet is waited for.
  explicit Follow(const std::string& run, const std::filesystem::path& newest_below = "out");

  // Throws UserError if the status of rank 0 is damaged or of another version.
  Look look();

 private:
  struct Before {
    double time = 0, processor_seconds = 0;
  };
  void read_ranks(Look& look);
  RankLook read_rank(const report::LiveState& live, double now);
  bool suite_is_over(const Look& look, double changed) const;

  std::filesystem::path folder_;
  std::map<int64_t, Before> before_;  // by process
};

}  // namespace snug::monitor
