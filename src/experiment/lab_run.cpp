// SPDX-License-Identifier: Apache-2.0
#include "experiment/lab_run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <deque>
#include <future>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/version.h"
#include "experiment/reports.h"
#include "experiment/stop_wish.h"
#include "machine/machine.h"

namespace snug::experiment {
namespace {

namespace fs = std::filesystem;

std::string now_text() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

// What the user's options say for all rows, searches' too.
void change_rows(const config::LabOptions& options, Suite& suite) {
  const auto change = [&](Row& row) {
    if (!options.device.empty()) row.device = options.device;
  };
  std::ranges::for_each(suite.rows, change);
  for (Group& group : suite.groups) change(group.base);
}

Settings extra_settings(const config::LabOptions& options) {
  Settings extra = read_settings(options.set);
  if (!options.memory_budget.empty()) extra.emplace_back("memory_budget", options.memory_budget);
  return extra;
}

std::string device_text(const config::LabOptions& options, const Suite& suite, Mode mode) {
  if (mode == Mode::Plan) return options.device.empty() ? suite.device : options.device;
  const machine::Gpus gpus = machine::gpus();
  if (mode == Mode::Run && !gpus.gpus.empty())
    return fmt::format("{} x {}", gpus.gpus.size(), gpus.gpus.front().name);
  return machine::processor().name;
}

std::map<std::string, std::string> versions() {
  std::map<std::string, std::string> result{{"snug", kVersion}, {"libtorch", SNUG_TORCH_VERSION}};
  utsname system{};
  if (::uname(&system) == 0) result[system.sysname] = system.release;
  const machine::Gpus gpus = machine::gpus();
  if (!gpus.driver_version.empty()) result["NVIDIA driver"] = gpus.driver_version;
  if (!gpus.cuda_version.empty()) result["CUDA (driver)"] = gpus.cuda_version;
  return result;
}

// "checkpoints/ORG/NAME" is what `snug download ORG/NAME` makes.
std::string how_to_get(const std::string& checkpoint) {
  constexpr std::string_view kFolder = "checkpoints/";
  if (!checkpoint.starts_with(kFolder)) return "";
  return "\n  snug download " + checkpoint.substr(kFolder.size());
}

size_t at_once() { return std::max(1U, std::thread::hardware_concurrency()); }

// Whether it fits; empty where it ended for another reason than memory.
std::optional<bool> answer_of(const RowResult& result) {
  if (result.outcome == Outcome::Ok) return true;
  if (result.outcome == Outcome::OutOfMemory) return false;
  return std::nullopt;
}

std::string edge_text(const Group& group, const Edge& edge) {
  const auto id = [&](int64_t value) { return search_row(group, value).id; };
  if (!edge.is_found) return "no answer, since a try ended for another reason than memory";
  if (!edge.fits) return fmt::format("even {} does not fit", id(group.smallest));
  if (!edge.too_large) return fmt::format("{} fits, the last that was to be tried", id(*edge.fits));
  return fmt::format("{} fits, {} does not", id(*edge.fits), id(*edge.too_large));
}

bool has_setting(const Settings& settings, std::string_view key) {
  return std::ranges::any_of(settings, [&](const auto& option) { return option.first == key; });
}

}  // namespace

fs::path default_folder(const std::string& suite, Mode mode) {
  const char* behind = mode == Mode::Plan ? "-plan" : mode == Mode::Scaled ? "-scaled" : "";
  return fs::path("out/lab") / (suite + behind);
}

LabRunner::LabRunner(const config::LabOptions& options, Suite suite, Mode mode,
                     const fs::path& folder, const std::string& command)
    : options_(options) {
  run_.suite = std::move(suite);
  run_.mode = mode;
  run_.folder = folder;
  change_rows(options, run_.suite);
  choose_rows();
  if (mode == Mode::Run) check_models();
  check_machine();
  if (!options.dry_run) folder_ = std::make_unique<LabFolder>(folder, run_.suite.name, mode);
  work_ = std::make_unique<RowWork>(run_.suite, mode, extra_settings(options), options.row_timeout,
                                    folder_.get());
  for (const Row& row : run_.suite.rows)
    if (is_chosen(row) && row.not_run.empty()) work_->check_words(row);
  begin_record(command);
}

void LabRunner::choose_rows() {
  for (const Row* row : chosen_rows(run_.suite, options_.rows)) chosen_.insert(row->id);
  for (const Group* group : chosen_searches(run_.suite, options_.rows)) searches_.push_back(*group);
}

// All that is missing at once, before the first row has begun.
void LabRunner::check_models() const {
  std::map<std::string, int> missing;  // checkpoint -> rows
  for (const Row& row : run_.suite.rows) {
    const auto model = run_.suite.models.find(row.model);
    if (!is_chosen(row) || !row.not_run.empty() || model == run_.suite.models.end()) continue;
    const std::string& checkpoint = model->second.checkpoint;
    const bool is_random =
        has_setting(row.options, "model.config") || has_setting(row.run_options, "model.config");
    if (!is_random && !checkpoint.empty() && !fs::is_directory(checkpoint)) ++missing[checkpoint];
  }
  if (missing.empty()) return;
  std::string text, commands;
  for (const auto& [checkpoint, rows] : missing) {
    text += fmt::format("\n  {} ({} row{})", checkpoint, rows, rows == 1 ? "" : "s");
    commands += how_to_get(checkpoint);
  }
  throw UserError(
      "suite {} trains models that are not here:{}\n{}{}\nWithout them: --plan foresees the rows "
      "at "
      "full size, --scaled runs them with small models",
      run_.suite.name, text,
      commands.empty() ? "Put them there, or change the suite's models." : "Fetch them with",
      commands);
}

void LabRunner::check_machine() const {
  if (run_.mode != Mode::Run) return;
  const machine::Gpus gpus = machine::gpus();
  if (gpus.gpus.empty())
    warn(
        "no GPU here ({}): the rows of {} run at full size on the processor, which takes long; "
        "--plan and --scaled need none",
        gpus.why_not, run_.suite.name);
}

// Rows that an earlier run did stay in the report, whatever was asked for this time.
void LabRunner::begin_record(const std::string& command) {
  LabRecord& record = run_.record;
  const Suite& suite = run_.suite;
  record = {.suite = suite.name,
            .title = suite.title,
            .about = suite.about,
            .source = suite.source,
            .mode = name(run_.mode),
            .command = command,
            .started = now_text(),
            .version = kVersion,
            .device = device_text(options_, suite, run_.mode),
            .hardware = machine::describe(),
            .versions = versions(),
            .rows = {}};
  std::set<std::string> wanted = chosen_;
  if (folder_ && folder_->before()) {
    if (!options_.restart) record.started = folder_->before()->started;
    wanted.insert(folder_->before()->rows.begin(), folder_->before()->rows.end());
  }
  const std::vector<Row> rows = suite.rows;
  for (const Row& row : rows)
    if (wanted.contains(row.id)) add_row(row);
  for (const Row& row : earlier_tries())
    if (wanted.contains(row.id)) add_row(row);
  if (folder_) folder_->write(record, run_.suite);
}

// Of the suite's searches, which this run may not be asked for.
std::vector<Row> LabRunner::earlier_tries() const {
  std::vector<Row> tries;
  if (!folder_ || !folder_->before()) return tries;
  const auto is_of_search = [&](const Row& row) {
    return std::ranges::any_of(run_.suite.groups, [&](const Group& group) {
      return group.kind == Group::Kind::Search && group.id == row.group;
    });
  };
  std::ranges::copy_if(read_suite_json(run_.folder / "suite.json").rows, std::back_inserter(tries),
                       is_of_search);
  return tries;
}

// Rows of the suite and tries of a search, each once.
void LabRunner::add_row(const Row& row) {
  if (run_.find_row(row.id) != nullptr) return;
  if (std::ranges::find(run_.suite.rows, row.id, &Row::id) == run_.suite.rows.end())
    run_.suite.rows.push_back(row);
  run_.rows.push_back(row);
  run_.record.rows.push_back(row.id);
  std::optional<RowResult> left;
  if (folder_ && !(options_.restart && is_chosen(row))) left = folder_->left(row.id);
  run_.results.push_back(left.value_or(RowResult{.id = row.id, .reason = "not done yet"}));
}

const LabRun& LabRunner::run(Progress& progress) {
  progress_ = &progress;
  size_t columns = 0;
  for (const std::string& id : chosen_) columns = std::max(columns, id.size());
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
  if (folder_) write_reports(run_);
  return run_;
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
  note(row, {.id = row.id, .outcome = Outcome::NotRun, .reason = why}, false);
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

// Within a search each try waits for the one before it, so that several go on at once.
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

}  // namespace snug::experiment
