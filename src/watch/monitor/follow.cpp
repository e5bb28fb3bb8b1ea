// SPDX-License-Identifier: Apache-2.0
#include "watch/monitor/follow.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/program.h"
#include "report/live_status.h"

namespace snug::monitor {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 6;  // levels of folders that are searched

struct Newest {
  fs::path run;
  double time = 0;
};

// Seconds since the epoch; 0 if it does not exist.
double changed_at(const fs::path& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  if (error) return 0;
  const auto system = std::chrono::file_clock::to_sys(time);
  return std::chrono::duration<double>(system.time_since_epoch()).count();
}

// Not a recursive_directory_iterator, which ends altogether when a folder vanishes under it.
void search(const fs::path& folder, int depth, Newest& newest) {
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    std::error_code gone;
    if (it->is_symlink(gone) || !it->is_directory(gone)) continue;
    if (it->path().filename() != "live") {
      if (depth < kDeepest) search(it->path(), depth + 1, newest);
      continue;
    }
    const double time = changed_at(it->path() / "rank-0.json");
    if (time <= newest.time) continue;
    newest = {folder, time};
  }
}

bool is_run(const fs::path& folder) { return changed_at(report::live_file(folder, 0)) > 0; }
bool is_suite(const fs::path& folder) { return changed_at(folder / "lab.json") > 0; }

// The run in or below a folder that wrote last; empty if there is none.
fs::path newest_run(const fs::path& below) {
  Newest newest;
  search(below, 0, newest);
  return newest.run;
}

// For a run in OUT/rows/ID/run of a suite in OUT: OUT. For any other run: the run itself.
fs::path suite_of(const fs::path& run) {
  const fs::path rows = run.parent_path().parent_path();
  return rows.filename() == "rows" && is_suite(rows.parent_path()) ? rows.parent_path() : run;
}

namespace fs = std::filesystem;

constexpr size_t kNewestShown = 5;
constexpr size_t kMaxBytes = size_t{1} << 28;

std::string text_at(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::vector<std::string> texts_at(const nlohmann::json& json, const char* key) {
  std::vector<std::string> texts;
  const auto found = json.find(key);
  if (found == json.end()) return texts;
  for (const nlohmann::json& text : *found)
    if (text.is_string()) texts.push_back(text);
  return texts;
}

nlohmann::json read_json(const fs::path& path) {
  try {
    return nlohmann::json::parse(read_file(path, kMaxBytes));
  } catch (const std::exception&) {
    return nlohmann::json::object();
  }
}

// A suite's folder as a lab leaves it.
struct SuiteFolder {
  SuiteLook look;      // is_over is set by Follow, which knows the processes
  fs::path run;        // of the row that wrote last; empty: none has started
  double changed = 0;  // seconds since the epoch, of the newest file
};

struct DoneRow {
  double time = 0;
  std::string id;
};

// The rows' folders. A row is done once its row.json exists.
struct Rows {
  std::vector<DoneRow> done;  // newest first
  fs::path newest_run;
  std::string current;  // the row that wrote last, unless it is done
  double newest_change = 0;
};

Rows read_rows(const fs::path& folder) {
  Rows rows;
  double newest_run = 0;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const fs::path row = it->path();
    const double ended = changed_at(row / "row.json");
    const double lives = changed_at(report::live_file(row / "run", 0));
    if (ended > 0) rows.done.push_back({ended, row.filename()});
    rows.newest_change = std::max({rows.newest_change, ended, lives, changed_at(row)});
    if (lives <= newest_run) continue;
    newest_run = lives;
    rows.newest_run = row / "run";
    rows.current = ended > 0 ? "" : row.filename().string();
  }
  std::ranges::sort(rows.done, std::greater<>(), &DoneRow::time);
  return rows;
}

SuiteFolder read_suite(const fs::path& folder) {
  const nlohmann::json lab = read_json(folder / "lab.json");
  const Rows rows = read_rows(folder / "rows");
  const std::vector<std::string> asked = texts_at(lab, "rows");
  SuiteFolder suite{.look = {.name = text_at(lab, "suite"),
                             .mode = text_at(lab, "mode"),
                             .current = rows.current,
                             .total = static_cast<int>(asked.size())},
                    .run = rows.newest_run,
                    .changed = std::max(changed_at(folder / "lab.json"), rows.newest_change)};
  const nlohmann::json made_from =
      lab.is_object() && lab.contains("made_from") ? lab["made_from"] : nlohmann::json();
  for (const DoneRow& row : rows.done) {
    const nlohmann::json result = read_json(folder / "rows" / row.id / "row.json");
    // Made from an earlier version of the suite; it will be done again.
    if (made_from.contains(row.id) &&
        text_at(made_from, row.id.c_str()) != text_at(result, "made_from"))
      continue;
    // The trials of a search are not among the rows asked for.
    if (std::ranges::find(asked, row.id) != asked.end()) ++suite.look.done;
    if (suite.look.newest.size() < kNewestShown)
      suite.look.newest.emplace_back(row.id, text_at(result, "outcome"));
  }
  return suite;
}

// A lab locks its folder while it runs. On a network file system another machine's lock may not be
// visible. Taking the lock, even for a moment, can turn away a lab that is just starting, so this
// is called only when the answer matters.
bool lab_is_at_work(const fs::path& folder) {
  const int file = ::open((folder / ".lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool is_held = ::flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(file);
  return is_held;
}

constexpr double kSuiteStands = 120;    // seconds without a change in a suite's folder
constexpr double kStartTolerance = 10;  // clocks of kernel and program differ a little

// Empty if there is no status. Throws UserError if there is one that cannot be parsed. A file that
// is replaced while it is read may fail once, so this tries several times.
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

// Empty for a damaged one too: the other ranks are still worth showing.
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

// Between two rows, and while reports are written, only its lock shows that a lab is running. A lab
// of this machine without a lock has ended; one elsewhere counts as ended when it stays silent.
bool Follow::suite_is_over(const Look& look, double changed) const {
  const bool row_runs =
      !look.suite->current.empty() && !look.ranks.empty() && !look.ranks.front().is_over();
  if (row_runs || lab_is_at_work(folder_)) return false;
  if (look.suite->done >= look.suite->total) return true;
  const bool was_here = !look.ranks.empty() && look.ranks.front().is_here;
  return was_here || look.time - changed > kSuiteStands;
}

// Rank 0 says how many ranks there are. Files left by an earlier run are skipped.
void Follow::read_ranks(Look& look) {
  const auto first = read_state(report::live_file(look.run_folder, 0));
  if (!first) return;
  const int size = std::clamp(first->world_size, 1, 65536);
  for (int rank = 0; rank < size; ++rank) {
    const fs::path file = report::live_file(look.run_folder, rank);
    const auto live = rank == 0 ? first : read_state_if_whole(file);
    if (!live || live->started < first->started - 60) continue;
    RankLook seen = read_rank(*live, look.time);
    // It may have ended properly between reading the status and looking for the process.
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
  // Another process may have its id by now: one that began after this was written. (live.started is
  // when the run was, by a launcher.)
  if (rank.use && rank.use->started > live.time + kStartTolerance) rank.use.reset();
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
