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
#include "lab/run/row_process.h"

namespace snug::lab {

namespace fs = std::filesystem;

fs::path default_folder(const Suite& suite, Mode mode, const std::string& device) {
  std::string behind = mode == Mode::Plan ? "-plan" : mode == Mode::Scaled ? "-scaled" : "";
  // Each folder is for one device, since its report names one device for all rows.
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
  const bool plans = run_.mode == Mode::Plan || options_.dry_run;
  // Plans take seconds, and the table that follows says each row.
  progress.begin_suite(run_.suite.name, static_cast<int>(chosen_.size()), columns,
                       !plans || options_.json);
  if (plans) {
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
  // If figures of another program are computed, the sweep goes on until that does not fit either.
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

// A lab run's searches: the largest value that fits, each try a row.

namespace {

// Whether it fits; empty where it ended for another reason than memory.
std::optional<bool> answer_of(const RowResult& result) {
  if (result.outcome == Outcome::Ok) return true;
  if (result.outcome == Outcome::OutOfMemory) return false;
  return std::nullopt;
}

std::string edge_text(const Group& group, const Edge& edge) {
  const auto id = [&](int64_t value) { return search_row(group, value).id; };
  if (!edge.is_found) return "no answer, because a try ended for another reason than memory";
  if (!edge.fits) return fmt::format("even {} does not fit", id(group.smallest));
  if (!edge.too_large) return fmt::format("{} fits, the largest value to try", id(*edge.fits));
  return fmt::format("{} fits, {} does not", id(*edge.fits), id(*edge.too_large));
}

}  // namespace

LabRunner::PlannedSearch LabRunner::plan_search(const Group& group) const {
  PlannedSearch search;
  const auto fits = [&](int64_t value) -> std::optional<bool> {
    if (StopWish::wanted()) return std::nullopt;
    const Row row = search_row(group, value);
    std::optional<RowResult> kept = done_before(row);
    const bool is_kept = kept.has_value();
    if (!is_kept && folder_) folder_->clear_row(row.id);
    search.tries.push_back({row, is_kept ? std::move(*kept) : work_->plan(row), is_kept});
    return answer_of(search.tries.back().result);
  };
  search.edge = find_edge(group.smallest, group.largest, group.smallest, group.smallest, fits);
  return search;
}

// Tries of one search depend on each other, so several searches run in parallel.
void LabRunner::plan_searches() {
  std::deque<std::pair<const Group*, std::future<PlannedSearch>>> begun;
  const auto note_first = [&] {
    const Group& group = *begun.front().first;
    PlannedSearch search = begun.front().second.get();
    begun.pop_front();
    progress_->add_rows(static_cast<int>(search.tries.size()));
    for (Try& each : search.tries) note(each.row, std::move(each.result), each.is_kept);
    if (!stops()) say_edge(group, search.edge);
  };
  for (const Group& group : searches_) {
    if (stops()) break;
    progress_->show({.id = group.id, .doing = "planning", .live = {}});
    begun.emplace_back(
        &group, std::async(std::launch::async, [this, &group] { return plan_search(group); }));
    if (begun.size() >= at_once()) note_first();
  }
  while (!begun.empty()) note_first();
}

// Plans find the edge, which runs then confirm or move.
void LabRunner::run_search(const Group& group) {
  const auto plan_fits = [&](int64_t value) -> std::optional<bool> {
    if (stops()) return std::nullopt;
    const Row row = search_row(group, value);
    progress_->show({.id = row.id, .doing = "planning", .live = {}});
    return answer_of(work_->plan(row));
  };
  const auto run_fits = [&](int64_t value) -> std::optional<bool> {
    const Row row = search_row(group, value);
    progress_->add_rows(1);
    const std::optional<RowResult> result = do_row(row);
    return result ? answer_of(*result) : std::nullopt;
  };
  Edge edge = find_edge(group.smallest, group.largest, group.smallest, group.smallest, plan_fits);
  if (edge.is_found)
    edge =
        find_edge(group.smallest, group.largest, edge.fits.value_or(group.smallest), 1, run_fits);
  if (!stops()) say_edge(group, edge);
}

void LabRunner::say_edge(const Group& group, const Edge& edge) {
  progress_->say(fmt::format("{}: {}", group.id, edge_text(group, edge)));
}

Edge find_edge(int64_t first, int64_t last, int64_t start, int64_t step, const Fits& fits) {
  Edge edge;
  const auto tries = [&](int64_t value) {
    const std::optional<bool> answer = fits(value);
    if (!answer) return false;
    (*answer ? edge.fits : edge.too_large) = value;
    return true;
  };
  step = std::max<int64_t>(1, step);
  if (!tries(std::clamp(start, first, last))) return edge;
  for (; !edge.too_large && *edge.fits < last; step *= 2)
    if (!tries(std::min(last, *edge.fits + step))) return edge;
  for (; !edge.fits && *edge.too_large > first; step *= 2)
    if (!tries(std::max(first, *edge.too_large - step))) return edge;
  while (edge.fits && edge.too_large && *edge.too_large - *edge.fits > 1)
    if (!tries(*edge.fits + (*edge.too_large - *edge.fits) / 2)) return edge;
  edge.is_found = true;
  return edge;
}

}  // namespace snug::lab
