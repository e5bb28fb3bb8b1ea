// What a process of a run is doing, for those who watch: a small file that is replaced now and
// then, never in the way of the run. live/rank-K.json in its out_dir.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace snug::report {

struct LiveState {
  std::string state;    // starting, planning, loading, training, validating, saving, ended
  std::string outcome;  // once ended: ok, oom, error
  std::string reason;   // of an end that is not ok, in its first line's words
  int64_t pid = 0;
  int rank = 0, world_size = 1;
  double time = 0;  // seconds since the epoch, when it was written
  double started = 0;
  std::string command, model, device, host;
  int64_t step = 0, total_steps = 0;
  double loss = 0;             // NaN before the first
  std::vector<double> losses;  // at most 200, evenly over the run so far
  double tokens_per_second = 0, share_of_peak = 0, step_seconds = 0;
  std::optional<double> seconds_left;
  int64_t allocated = 0, peak = 0, reserved = 0, budget = 0, predicted_peak = 0, host_bytes = 0;
  std::map<std::string, int64_t> by_category;       // now, at the end of the last step
  std::map<std::string, int64_t> peak_by_category;  // what was live at the peak
};

std::string live_json(const LiveState& state);
LiveState read_live_json(const std::filesystem::path& path);  // throws UserError

// At most 200 values, evenly over all that were added: where they are too many, every other one
// goes, and only every second, fourth, … is taken from then on.
class ThinnedSeries {
 public:
  void add(double value);
  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<double> values_;
  int64_t stride_ = 1;
  int64_t count_ = 0;
};

std::filesystem::path live_file(const std::filesystem::path& out_dir, int rank);

// Replaces the file at most `per_second` times a second; `force` for what must be seen (a change of
// state, the end). Never throws: a full disk must not end a run for this.
class LiveWriter {
 public:
  explicit LiveWriter(std::filesystem::path file, double per_second = 2);
  // Whether a write that is not forced would be done now: what a state costs to gather is spared
  // where not.
  bool is_due() const;
  void write(const LiveState& state, bool force = false) noexcept;

 private:
  std::filesystem::path file_;
  double interval_;
  double last_ = -1e18;
};

}  // namespace snug::report
