// The live status of one process of a run, for snug monitor: live/rank-K.json in its out_dir, a
// small file that is replaced a few times a second and never holds up the run.
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
  std::string reason;   // the first line of the error, if the outcome is not ok
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

// Keeps at most 200 values, evenly spread over all that were added: when there are more, it drops
// every other one and from then on takes only every second, fourth, …
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

// Replaces the file at most `per_second` times a second, unless forced (a change of state, the
// end). Never throws: a full disk must not end a run for this.
class LiveWriter {
 public:
  explicit LiveWriter(std::filesystem::path file, double per_second = 2);
  // Whether an unforced write would happen now; if not, the state need not be gathered.
  bool is_due() const;
  void write(const LiveState& state, bool force = false) noexcept;

 private:
  std::filesystem::path file_;
  double interval_;
  double last_ = -1e18;
  bool has_written_ = false;
};

}  // namespace snug::report
