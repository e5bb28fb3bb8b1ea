// SPDX-License-Identifier: Apache-2.0
#include "watch/monitor/follow.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "watch/monitor/folders.h"
#include "watch/monitor/suite_folder.h"

namespace snug::monitor {
namespace {

namespace fs = std::filesystem;

constexpr double kSuiteStands = 120;    // seconds without a change in a suite's folder
constexpr double kStartTolerance = 10;  // clocks of kernel and program differ a little

// Empty where the process has left no status, or it was taken away while it was read. Throws
// UserError for one that is there and cannot be understood. Taken away and put back in between, it
// is there and could not be read either: so it is asked again before that is believed.
std::optional<report::LiveState> read_state(const fs::path& file) {
  constexpr int kTries = 5;
  for (int left = kTries - 1;; --left) {
    try {
      return report::read_live_json(file);
    } catch (const UserError&) {
      if (changed_at(file) == 0) return std::nullopt;
      if (left == 0) throw;
    }
  }
}

// Damaged ones among many are passed over: the others are still worth seeing.
std::optional<report::LiveState> read_state_if_whole(const fs::path& file) {
  try {
    return read_state(file);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

}  // namespace

Follow::Follow(const std::string& run, const fs::path& newest_below) : folder_(run) {
  std::error_code error;
  if (!run.empty() && !fs::is_directory(folder_, error))
    throw UserError(
        "{}: no such folder; give the --out_dir of a run, or nothing for the newest run under {}",
        run, newest_below.string());
  if (!run.empty() && (is_run(folder_) || is_suite(folder_))) return;
  const fs::path below = run.empty() ? newest_below : folder_;
  if (const fs::path newest = newest_run(below); !newest.empty())
    folder_ = suite_of(newest);
  else if (run.empty())
    throw UserError(
        "there is no run under {}/; start one with snug finetune, or give the folder of a run: "
        "snug monitor FOLDER",
        newest_below.string());
  else if (fs::exists(folder_ / "run.json", error))
    throw UserError(
        "{}: this run has no live status, so there is nothing to watch; its figures are in "
        "run.json and report.html",
        run);
}

Look Follow::look() {
  if (!is_run(folder_) && !is_suite(folder_))
    if (const fs::path newest = newest_run(folder_); !newest.empty()) folder_ = suite_of(newest);
  Look look{.folder = folder_, .run_folder = folder_, .time = unix_seconds()};
  double changed = 0;
  if (is_suite(folder_)) {
    SuiteFolder suite = read_suite(folder_);
    look.suite = std::move(suite.look);
    look.run_folder = std::move(suite.run);
    changed = suite.changed;
  }
  if (!look.run_folder.empty()) read_ranks(look);
  if (look.suite) look.suite->is_over = suite_is_over(look, changed);
  look.gpus = machine::gpus();
  static const int cores = machine::processor().cores;
  look.cores = cores;
  return look;
}

// Between two rows, and while its reports are written, a lab is known by its lock alone. One that
// was on this machine and holds none has ended; of one elsewhere only its silence tells.
bool Follow::suite_is_over(const Look& look, double changed) const {
  const bool row_runs =
      !look.suite->current.empty() && !look.ranks.empty() && !look.ranks.front().is_over();
  if (row_runs || lab_is_at_work(folder_)) return false;
  if (look.suite->done >= look.suite->total) return true;
  const bool was_here = !look.ranks.empty() && look.ranks.front().is_here;
  return was_here || look.time - changed > kSuiteStands;
}

// The first one says how many there are; what an earlier run left of the others is not theirs.
void Follow::read_ranks(Look& look) {
  const auto first = read_state(report::live_file(look.run_folder, 0));
  if (!first) return;
  const int size = std::clamp(first->world_size, 1, 65536);
  for (int rank = 0; rank < size; ++rank) {
    const fs::path file = report::live_file(look.run_folder, rank);
    const auto live = rank == 0 ? first : read_state_if_whole(file);
    if (!live || live->started < first->started - 60) continue;
    RankLook seen = read_rank(*live, look.time);
    // It may have said that it ended, and ended, between the two readings.
    if (seen.is_gone)
      if (const auto again = read_state_if_whole(file)) seen = read_rank(*again, look.time);
    look.ranks.push_back(std::move(seen));
  }
}

RankLook Follow::read_rank(const report::LiveState& live, double now) {
  static const std::string here = host_name();
  RankLook rank{
      .live = live, .is_here = live.host == here, .silent_seconds = std::max(0.0, now - live.time)};
  if (!rank.is_here) return rank;
  rank.use = machine::process_use(live.pid);
  // Another process may have its number by now.
  if (rank.use && rank.use->started > live.started + kStartTolerance) rank.use.reset();
  rank.is_gone = !rank.use && !rank.has_ended();
  if (!rank.use) return rank;
  Before& before = before_[live.pid];
  const double since = before.time > 0 ? before.time : rank.use->started;
  const double seconds = now - since;
  if (seconds > 0)
    rank.processor_percent =
        100 * (rank.use->processor_seconds - before.processor_seconds) / seconds;
  before = {now, rank.use->processor_seconds};
  return rank;
}

}  // namespace snug::monitor
