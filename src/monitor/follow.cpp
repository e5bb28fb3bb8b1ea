// SPDX-License-Identifier: Apache-2.0
#include "monitor/follow.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"

namespace snug::monitor {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNewestShown = 5;
constexpr int kDeepest = 6;             // folders below which a run is looked for
constexpr double kSuiteStands = 120;    // seconds without a change in a suite's folder
constexpr double kStartTolerance = 10;  // clocks of kernel and program differ a little

double now_seconds() {
  using std::chrono::system_clock;
  return std::chrono::duration<double>(system_clock::now().time_since_epoch()).count();
}

std::string this_host() {
  std::array<char, 256> text{};
  return ::gethostname(text.data(), text.size() - 1) == 0 ? text.data() : "?";
}

// Seconds since the epoch; 0 where it is not there.
double changed_at(const fs::path& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  if (error) return 0;
  const auto system = std::chrono::file_clock::to_sys(time);
  return std::chrono::duration<double>(system.time_since_epoch()).count();
}

bool is_suite(const fs::path& folder) { return fs::exists(folder / "lab.json"); }
bool is_run(const fs::path& folder) { return fs::exists(report::live_file(folder, 0)); }

// The newest run in or below a folder; empty where there is none.
fs::path newest_run(const fs::path& below) {
  fs::path newest;
  double newest_time = 0;
  std::error_code error;
  const auto options = fs::directory_options::skip_permission_denied;
  for (auto it = fs::recursive_directory_iterator(below, options, error);
       !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    if (it.depth() >= kDeepest) it.disable_recursion_pending();
    if (it->path().filename() != "live") continue;
    const double time = changed_at(it->path() / "rank-0.json");
    if (time <= newest_time) continue;
    newest_time = time;
    newest = it->path().parent_path();
  }
  return newest;
}

// OUT/rows/ID/run belongs to the suite in OUT.
fs::path suite_of(const fs::path& run) {
  const fs::path rows = run.parent_path().parent_path();
  return rows.filename() == "rows" && is_suite(rows.parent_path()) ? rows.parent_path() : run;
}

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
    return nlohmann::json::parse(read_file(path, size_t{1} << 28));
  } catch (const std::exception&) {
    return nlohmann::json::object();
  }
}

struct DoneRow {
  double time;
  std::string id;
};

// Rows that are done are those whose row.json is there.
SuiteLook read_suite(const fs::path& folder, fs::path& run, double now) {
  const nlohmann::json lab = read_json(folder / "lab.json");
  SuiteLook suite{.name = text_at(lab, "suite"), .mode = text_at(lab, "mode")};
  double newest_run = 0, newest_change = changed_at(folder / "lab.json");
  std::vector<DoneRow> done;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder / "rows", error)) {
    const double ended = changed_at(entry.path() / "row.json");
    const double lives = changed_at(report::live_file(entry.path() / "run", 0));
    if (ended > 0) done.push_back({ended, entry.path().filename()});
    newest_change = std::max({newest_change, ended, lives, changed_at(entry.path())});
    if (lives <= newest_run) continue;
    newest_run = lives;
    run = entry.path() / "run";
    suite.current = ended > 0 ? "" : entry.path().filename().string();
  }
  std::ranges::sort(done, std::greater<>(), &DoneRow::time);
  const std::vector<std::string> asked = texts_at(lab, "rows");
  for (const DoneRow& row : done) {
    // A search's tries are beside the rows that were asked for.
    if (std::ranges::find(asked, row.id) != asked.end()) ++suite.done;
    if (suite.newest.size() < kNewestShown)
      suite.newest.emplace_back(
          row.id, text_at(read_json(folder / "rows" / row.id / "row.json"), "outcome"));
  }
  suite.total = static_cast<int>(asked.size());
  suite.is_over =
      suite.current.empty() && (suite.done >= suite.total || now - newest_change > kSuiteStands);
  return suite;
}

}  // namespace

Follow::Follow(const std::string& run, const fs::path& newest_below) : folder_(run) {
  if (!run.empty() && !fs::is_directory(folder_))
    throw UserError(
        "{}: there is no such folder; name the --out_dir of a run, or none for the newest under {}",
        run, newest_below.string());
  if (run.empty() || (!is_run(folder_) && !is_suite(folder_))) {
    const fs::path below = run.empty() ? newest_below : folder_;
    if (const fs::path newest = newest_run(below); !newest.empty())
      folder_ = suite_of(newest);
    else if (run.empty())
      throw UserError(
          "there is no run under {}/; start one with snug finetune, or name a run's folder: snug "
          "monitor FOLDER",
          newest_below.string());
    else if (fs::exists(folder_ / "run.json"))
      throw UserError(
          "{}: the run there left no live status, so there is nothing to watch; its figures are in "
          "run.json and report.html",
          run);
  }
  is_suite_ = is_suite(folder_);
}

Look Follow::look() {
  Look look{.folder = folder_, .run_folder = folder_, .time = now_seconds()};
  if (is_suite_ || is_suite(folder_)) {
    is_suite_ = true;
    fs::path run;
    look.suite = read_suite(folder_, run, look.time);
    look.run_folder = run;
  }
  if (!look.run_folder.empty()) read_ranks(look);
  look.gpus = machine::gpus();
  static const int cores = machine::processor().cores;
  look.cores = cores;
  // A row whose process is gone does not go on.
  if (look.suite && !look.suite->current.empty() && !look.ranks.empty() &&
      look.ranks.front().is_over() && look.ranks.front().silent_seconds > kSuiteStands)
    look.suite->is_over = true;
  return look;
}

// The first one says how many there are; what an earlier run left of the others is not theirs.
void Follow::read_ranks(Look& look) {
  int size = 1;
  double started = 0;
  for (int rank = 0; rank < size; ++rank) {
    const fs::path file = report::live_file(look.run_folder, rank);
    if (!fs::exists(file)) continue;
    report::LiveState live;
    try {
      live = report::read_live_json(file);
    } catch (const UserError&) {
      if (rank == 0) throw;
      continue;
    }
    if (rank == 0) {
      size = std::clamp(live.world_size, 1, 65536);
      started = live.started;
    }
    if (live.started < started - 60) continue;
    RankLook seen = read_rank(live, look.time);
    // It may have said that it ended, and ended, between the two readings.
    if (seen.is_gone) seen = read_rank(report::read_live_json(file), look.time);
    look.ranks.push_back(std::move(seen));
  }
}

RankLook Follow::read_rank(const report::LiveState& live, double now) {
  RankLook rank{.live = live,
                .is_here = live.host == this_host(),
                .silent_seconds = std::max(0.0, now - live.time)};
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
