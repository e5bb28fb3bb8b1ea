// SPDX-License-Identifier: Apache-2.0
#include "train/out_dir/earlier_run.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "base/files.h"
#include "engine/export/export.h"
#include "files/checkpoint/folders.h"
#include "train/launch/rank_record.h"
#include "train/other_models.h"
#include "train/reference.h"

namespace snug::train {
namespace {

namespace fs = std::filesystem;

// Besides its checkpoints and logs. live/ belongs to running processes, not to an earlier run.
constexpr const char* kFilesOfRun[] = {
    "final",       "final-merged", "log.txt", "metrics.csv",  "metrics.csv.old", "report.html",
    "tensorboard", "trace.json",   "trace",   kReferenceFile, kTeacherFile,      "run.json"};
constexpr const char* kLogsPutBy = ".earlier-logs";

// A record that cannot be read is kept too.
bool has_steps(const fs::path& run_json) {
  const std::string text = read_file(run_json);
  const auto run = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  return !run.is_object() || !run.value("steps", nlohmann::json::array()).empty();
}

// Steps of a run that was killed before its record had them.
bool has_rows(const fs::path& metrics) {
  std::ifstream lines(metrics);
  std::string line;
  for (int i = 0; i < 2; ++i)
    if (!std::getline(lines, line)) return false;
  return true;
}

// The ranks' records and logs. A link was made by the user and stays.
bool has_logs(const fs::path& folder) {
  std::error_code error;
  return fs::is_directory(folder, error) && !fs::is_symlink(folder, error) &&
         !fs::is_empty(folder, error);
}

}  // namespace

void clear_up_after_kills(const fs::path& out_dir) {
  std::error_code error;
  if (!fs::is_directory(out_dir, error)) return;
  checkpoint::undo_half_a_move(out_dir);
  checkpoint::remove_temporaries(out_dir);
  engine::finish_replacing(out_dir / "final");
  for (const fs::path& folder : {out_dir, out_dir / "live", out_dir / "logs"})
    remove_abandoned(folder);
}

void clear_up_finished(const fs::path& out_dir) {
  clear_up_after_kills(out_dir);
  std::error_code ignored;
  std::vector<fs::path> halves;
  for (const auto& entry : fs::directory_iterator(out_dir / "live", ignored))
    if (entry.path().extension() == ".new" && entry.is_regular_file(ignored))
      halves.push_back(entry.path());
  for (const fs::path& half : halves) fs::remove(half, ignored);
}

// If some were moved already, the current ones are of a run that failed before it wrote anything.
void put_logs_by(const fs::path& out_dir) {
  std::error_code ignored;
  const fs::path logs = launch::logs_folder(out_dir.string());
  if (has_logs(logs) && !fs::exists(out_dir / kLogsPutBy))
    fs::rename(logs, out_dir / kLogsPutBy, ignored);
}

void drop_logs_put_by(const fs::path& out_dir) {
  std::error_code ignored;
  fs::remove_all(out_dir / kLogsPutBy, ignored);
}

bool holds_earlier_run(const fs::path& out_dir) {
  if (!checkpoint::all_checkpoints(out_dir).empty() || fs::exists(out_dir / "final")) return true;
  return (fs::exists(out_dir / "run.json") && has_steps(out_dir / "run.json")) ||
         has_rows(out_dir / "metrics.csv");
}

fs::path set_run_aside(const fs::path& out_dir, const fs::path& kept) {
  std::vector<fs::path> found = checkpoint::all_checkpoints(out_dir);
  for (const char* name : kFilesOfRun)
    if (std::error_code none;
        fs::exists(out_dir / name) && (kept.empty() || !fs::equivalent(out_dir / name, kept, none)))
      found.push_back(out_dir / name);
  const bool has_logs = fs::exists(out_dir / kLogsPutBy);
  if (has_logs) found.push_back(out_dir / kLogsPutBy);
  const fs::path earlier = checkpoint::move_aside(out_dir, found);
  std::error_code ignored;
  if (has_logs) fs::rename(earlier / kLogsPutBy, earlier / "logs", ignored);
  return earlier;
}

// out_dir/earlier holds either checkpoints that this run left behind it, or a whole other run.
bool is_of_run_in(const fs::path& out_dir, const fs::path& checkpoint) {
  std::error_code error;
  const fs::path folder = fs::absolute(checkpoint / "").lexically_normal().parent_path();
  const fs::path holder = folder.parent_path();
  if (fs::equivalent(holder, out_dir, error)) return true;
  return fs::equivalent(holder.parent_path(), out_dir, error) && !fs::exists(holder / "run.json");
}

}  // namespace snug::train
