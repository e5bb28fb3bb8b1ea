// SPDX-License-Identifier: Apache-2.0
#include "lab/run/lab_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <future>
#include <thread>
#include <utility>

#include "base/error.h"
#include "lab/report/reports.h"
#include "lab/run/stop_wish.h"

namespace snug::lab {

namespace fs = std::filesystem;

fs::path default_folder(const Suite& suite, Mode mode, const std::string& device) {
  std::string behind = mode == Mode::Plan ? "-plan" : mode == Mode::Scaled ? "-scaled" : "";
  // One folder, one device: its report says of all rows what they were planned for.
  if (!device.empty() && device != suite.device)
    behind += "-" + fs::path(device).filename().replace_extension().string();
  return fs::path("out/lab") / (suite.name + behind);
}

size_t LabRunner::at_once() { return std::max(1U, std::thread::hardware_concurrency()); }

const LabRun& LabRunner::run(Progress& progress) {
  progress_ = &progress;
  begin();
  size_t columns = 0;
  for (const std::string& id : chosen_) columns = std::max(columns, id.size());
  for (const Group& group : searches_)
    for (const int64_t value : {group.smallest, group.largest})
      columns = std::max(columns, search_row(group, value).id.size());
  progress.begin_suite(run_.suite.name, static_cast<int>(chosen_.size()), columns);
  if (run_.mode == Mode::Plan || options_.dry_run) {
    plan_rows();
    plan_searches();
  } else {
    run_rows();
    for (const Group& group : searches_)
      if (!stops()) run_search(group);
  }
  is_stopped_ = stops();
  progress.end_suite();
  return run_;
}

void LabRunner::end() {
  if (!folder_) return;
  const std::unique_ptr<LabFolder> held = std::move(folder_);
  work_.reset();  // it writes there
  try {
    write_reports(run_);
  } catch (const UserError& error) {
    throw UserError(
        "{}\nThe rows are kept in {}; once the disk is writable again, snug lab report {} writes "
        "the report",
        error.what(), run_.folder.string(), run_.folder.string());
  }
}

bool LabRunner::stops() const { return is_stopped_ || StopWish::wanted(); }

std::optional<RowResult> LabRunner::done_before(const Row& row) const {
  if (!folder_ || options_.restart) return std::nullopt;
  return folder_->done(row.id, work_->made_from(row));
}

std::string LabRunner::why_not_run(const Row& row) const {
  if (!row.not_run.empty()) return row.not_run;
  const auto ended = ended_sweeps_.find(row.group);
  if (row.group.empty() || ended == ended_sweeps_.end()) return "";
  return fmt::format("beyond {}, which ran out of memory and ended the sweep", ended->second);
}

void LabRunner::note_not_run(const Row& row, const std::string& why) {
  note(row,
       {.id = row.id, .outcome = Outcome::NotRun, .reason = why, .made_from = wanted_from(row)},
       false);
}

void LabRunner::note(const Row& row, RowResult result, bool is_kept) {
  add_row(row);
  if (folder_ && !is_kept) folder_->write(result);
  // Where another program is counted too, its curve is wanted to its own end.
  const bool is_end =
      result.outcome == Outcome::OutOfMemory && (!result.like || !result.like->fits);
  if (is_end && !row.group.empty()) ended_sweeps_.try_emplace(row.group, row.id);
  progress_->row_ended(result, is_kept);
  *std::ranges::find(run_.results, row.id, &RowResult::id) = std::move(result);
  run_.record.seconds = 0;
  for (const RowResult& each : run_.results) run_.record.seconds += each.seconds;
  if (folder_ && !is_kept) folder_->write(run_.record, run_.suite);
}

std::future<RowResult> LabRunner::begin_plan(const Row& row) const {
  if (folder_) folder_->clear_row(row.id);
  return std::async(std::launch::async, [this, &row] { return work_->plan(row); });
}

// As many at a time as there are processors; noted in the order of the suite.
void LabRunner::plan_rows() {
  struct Planned {
    const Row* row;
    std::optional<RowResult> kept;
    std::future<RowResult> result;  // of those that are not kept
  };
  const std::vector<Row> rows = run_.suite.rows;  // outlives the threads that read it
  std::deque<Planned> begun;
  const auto note_first = [&] {
    Planned planned = std::move(begun.front());
    begun.pop_front();
    const bool is_kept = planned.kept.has_value();
    RowResult result = is_kept ? std::move(*planned.kept) : planned.result.get();
    if (const std::string why = why_not_run(*planned.row); !why.empty())
      note_not_run(*planned.row, why);
    else
      note(*planned.row, std::move(result), is_kept);
  };
  for (const Row& row : rows) {
    if (!is_chosen(row)) continue;
    if (stops()) break;
    Planned planned{.row = &row, .kept = done_before(row), .result = {}};
    if (const std::string why = why_not_run(row); !why.empty())
      planned.kept = RowResult{.id = row.id};  // said when its turn comes
    else if (!planned.kept)
      planned.result = begin_plan(row);
    progress_->show({.id = row.id, .doing = "planning", .live = {}});
    begun.push_back(std::move(planned));
    if (begun.size() >= at_once()) note_first();
  }
  while (!begun.empty()) note_first();
}

void LabRunner::run_rows() {
  const std::vector<Row> rows = run_.suite.rows;
  for (const Row& row : rows) {
    if (!is_chosen(row)) continue;
    if (stops()) return;
    if (const std::string why = why_not_run(row); !why.empty())
      note_not_run(row, why);
    else
      do_row(row);
  }
}

std::optional<RowResult> LabRunner::do_row(const Row& row) {
  if (stops()) return std::nullopt;
  if (std::optional<RowResult> kept = done_before(row)) {
    note(row, *kept, true);
    return kept;
  }
  const auto show = [this](const RowStatus& status) { progress_->show(status); };
  if (folder_) folder_->clear_row(row.id);
  show({.id = row.id, .doing = "planning", .live = {}});
  RowResult result = work_->run(row, show);
  note(row, result, false);
  return result;
}

}  // namespace snug::lab
