// Why a run of several processes ended, out of what their records say: one message, one exit code.
// When one rank fails the others lose it or are ended for it, so most records are consequences.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/launch/rank_record.h"

namespace snug::launch {

using Records = std::vector<std::optional<RankRecord>>;  // by rank; none: nothing is known of it

struct Verdict {
  int exit_code = 0;
  std::string message;      // empty for a run that went well
  std::optional<int> rank;  // whose failure it is; none where several failed alike
  bool out_of_memory = false;
};

// 0, or why it ended as an exit code of this program: 1, 2 or 3.
int exit_code_of(const RankRecord& record);

bool any_failed(const Records& records);
bool all_done(const Records& records);

// `folder` holds the logs that the message points to, `out_dir` the checkpoints to go on from.
// `stop_wanted`: the person asked all to stop, so ranks that a signal ended did as they were told.
Verdict judge(const Records& records, const std::filesystem::path& out_dir, bool stop_wanted);

// For a run whose processes could not be started, or ended without a word.
Verdict judge_silent_end(const std::string& reason, int exit_code,
                         const std::filesystem::path& out_dir);

// What run.json was before the run, and how it ended if rank 0 could not say so itself.
class RunJson {
 public:
  explicit RunJson(const std::filesystem::path& out_dir);
  // Sets outcome and reason of a record that this run has begun and not ended as the verdict says.
  void amend(const Verdict& verdict) const;

 private:
  std::filesystem::path path_;
  std::filesystem::file_time_type before_;
};

}  // namespace snug::launch
