// From a folder to what is seen of the run in it: a run's out_dir, a suite's folder, whose newest
// row is followed, or a folder somewhere below which runs are.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "watch/monitor/look.h"

namespace snug::monitor {

class Follow {
 public:
  // Empty: the newest run below `newest_below`. Throws UserError where there is nothing to follow;
  // a folder that is there and has no run in it yet is waited for.
  explicit Follow(const std::string& run, const std::filesystem::path& newest_below = "out");

  // Throws UserError where the first process's status is damaged, or of another snug. What comes
  // and goes while it looks is no error.
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
