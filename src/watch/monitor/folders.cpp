// SPDX-License-Identifier: Apache-2.0
#include "watch/monitor/folders.h"

#include <chrono>

#include "report/live_status.h"

namespace snug::monitor {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 6;  // folders below which a run is looked for

struct Newest {
  fs::path run;
  double time = 0;
};

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// By hand: the library's own walk ends as a whole where a folder goes away under it.
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

}  // namespace

double changed_at(const fs::path& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  if (error) return 0;
  const auto system = std::chrono::file_clock::to_sys(time);
  return std::chrono::duration<double>(system.time_since_epoch()).count();
}

bool is_run(const fs::path& folder) { return is_there(report::live_file(folder, 0)); }
bool is_suite(const fs::path& folder) { return is_there(folder / "lab.json"); }

fs::path newest_run(const fs::path& below) {
  Newest newest;
  search(below, 0, newest);
  return newest.run;
}

fs::path suite_of(const fs::path& run) {
  const fs::path rows = run.parent_path().parent_path();
  return rows.filename() == "rows" && is_suite(rows.parent_path()) ? rows.parent_path() : run;
}

}  // namespace snug::monitor
