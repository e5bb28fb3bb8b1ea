// The start of a lab run: chooses rows, checks that what they need exists, and takes over results
// of an earlier run.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <ctime>

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "base/program.h"
#include "files/hub/hub_name.h"
#include "lab/run/lab_run.h"
#include "watch/machine/machine.h"

namespace snug::lab {
namespace {

namespace fs = std::filesystem;

std::string now_text() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

// The user's options for all rows, including those of searches.
void change_rows(const recipe::LabOptions& options, Suite& suite) {
  const auto change = [&](Row& row) {
    if (options.device.empty() || options.device == row.device) return;
    row.device = options.device;
    row.price_per_hour.clear();  // that was another device's
  };
  std::ranges::for_each(suite.rows, change);
  for (Group& group : suite.groups) change(group.base);
}

Settings extra_settings(const recipe::LabOptions& options) {
  Settings extra = read_settings(options.set);
  if (!options.memory_budget.empty()) extra.emplace_back("memory_budget", options.memory_budget);
  return extra;
}

std::string device_text(const recipe::LabOptions& options, const Suite& suite, Mode mode,
                        const GpusHere& gpus) {
  if (mode == Mode::Plan) return options.device.empty() ? suite.device : options.device;
  if (gpus.count > 0) return fmt::format("{} x {}", gpus.count, gpus.name);
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

std::string how_to_get(const std::string& checkpoint) {
  const std::string name = hub::hub_name(checkpoint);
  return name.empty() ? "" : "\n  snug download " + name;
}

bool has_setting(const Settings& settings, std::string_view key) {
  return std::ranges::any_of(settings, [&](const auto& option) { return option.first == key; });
}

// The same try in the current search; empty if it has none.
std::optional<Row> same_try(const Group& group, const Row& before) {
  const auto value = static_cast<int64_t>(before.value.value_or(0));
  const bool is_its_own = group.kind == Group::Kind::Search && before.group == group.id &&
                          value >= group.smallest && value <= group.largest;
  if (!is_its_own) return std::nullopt;
  Row now = search_row(group, value);
  if (now.id != before.id) return std::nullopt;
  return now;
}

}  // namespace

LabRunner::LabRunner(recipe::LabOptions options, Suite suite, Mode mode, const fs::path& folder,
                     std::string command, const DeviceQuestions& devices)
    : options_(std::move(options)), command_(std::move(command)) {
  run_.suite = std::move(suite);
  run_.mode = mode;
  run_.folder = folder;
  change_rows(options_, run_.suite);
  choose_rows();
  if (mode == Mode::Run) {
    check_models();
    gpus_ = devices.gpus();
  }
  work_ = std::make_unique<RowWork>(run_.suite, mode, extra_settings(options_),
                                    options_.row_timeout, nullptr, gpus_.name);
  for (const Row& row : run_.suite.rows)
    if (is_chosen(row) && row.not_run.empty()) work_->check_words(row);
  if (mode == Mode::Plan) check_profiles(devices);
}

void LabRunner::begin() {
  if (run_.mode == Mode::Run) {
    warn_of_machine();
    warn_of_budgets();
  }
  if (!options_.dry_run)
    folder_ = std::make_unique<LabFolder>(run_.folder, run_.suite.name, run_.mode, command_);
  work_ = std::make_unique<RowWork>(run_.suite, run_.mode, extra_settings(options_),
                                    options_.row_timeout, folder_.get(), gpus_.name);
  begin_record();
}

// Reports an unknown device or a budget that is too small once, not once per row.
void LabRunner::check_profiles(const DeviceQuestions& devices) const {
  std::set<std::pair<std::string, std::string>> checked;
  const auto check = [&](const Row& row) {
    const std::string& budget =
        options_.memory_budget.empty() ? row.memory_budget : options_.memory_budget;
    if (row.device.empty() || !checked.emplace(row.device, budget).second) return;
    const int64_t bytes = budget.empty() ? 0 : parse_bytes(budget, "memory_budget");
    try {
      devices.check_profile(row.device, bytes);
    } catch (const UserError& error) {
      const bool is_own = options_.device.empty() && options_.memory_budget.empty();
      if (is_own) throw UserError("suite {}: {}", run_.suite.name, error.what());
      throw;
    }
  };
  for (const Row& row : run_.suite.rows)
    if (is_chosen(row) && row.not_run.empty()) check(row);
  for (const Group& group : searches_) check(group.base);
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
    if (!is_random && !checkpoint.empty() && hub::is_absent(checkpoint)) ++missing[checkpoint];
  }
  if (missing.empty()) return;
  std::string text, commands;
  for (const auto& [checkpoint, rows] : missing) {
    text += fmt::format("\n  {} ({} row{})", checkpoint, rows, rows == 1 ? "" : "s");
    commands += how_to_get(checkpoint);
  }
  throw UserError(
      "suite {} trains models that are not on this machine:{}\n{}{}\nWithout them, --plan predicts "
      "the rows at full size, and --scaled runs them with small models",
      run_.suite.name, text,
      commands.empty() ? "Copy them there, or change the suite's models." : "Download them with",
      commands);
}

// Rows that are meant for the processor need no GPU.
void LabRunner::warn_of_machine() const {
  if (gpus_.count > 0) return;
  const auto wants_gpu = [&](const Row& row) {
    return is_chosen(row) && row.not_run.empty() && !work_->is_for_processor(row);
  };
  const auto rows = std::ranges::count_if(run_.suite.rows, wants_gpu);
  if (rows == 0) return;
  warn(
      "no GPU here ({}): {} row{} of {} run{} at full size on the processor, which takes long; "
      "--plan and --scaled need no GPU",
      gpus_.why_none, rows, rows == 1 ? "" : "s", run_.suite.name, rows == 1 ? "s" : "");
}

// The budget of a plan stands for the memory of its device; runs use this machine's.
void LabRunner::warn_of_budgets() const {
  const auto is_passed_over = [&](const Row& row) {
    return is_chosen(row) && row.not_run.empty() && !row.memory_budget.empty() &&
           !work_->has_budget(row);
  };
  const auto rows = std::ranges::count_if(run_.suite.rows, is_passed_over);
  if (rows == 0) return;
  const auto first = std::ranges::find_if(run_.suite.rows, is_passed_over);
  warn(
      "memory_budget of {} row{} ({}: {}) applies only to plans, and runs use all memory of this "
      "machine; limit runs with set: {{memory_budget: {}}} or --memory_budget",
      rows, rows == 1 ? "" : "s", first->id, first->memory_budget, first->memory_budget);
}

// Rows that an earlier run did stay in the report, whatever was asked for this time.
void LabRunner::begin_record() {
  LabRecord& record = run_.record;
  const Suite& suite = run_.suite;
  record = {.suite = suite.name,
            .title = suite.title,
            .about = suite.about,
            .source = suite.source,
            .mode = name(run_.mode),
            .command = command_,
            .started = now_text(),
            .version = kVersion,
            .device = device_text(options_, suite, run_.mode, gpus_),
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

// The tries of an earlier run in this folder, as the suite has them now.
std::vector<Row> LabRunner::earlier_tries() const {
  std::vector<Row> tries;
  if (!folder_ || !folder_->before()) return tries;
  for (const Row& row : read_suite_json(run_.folder / "suite.json").rows)
    for (const Group& group : run_.suite.groups)
      if (std::optional<Row> now = same_try(group, row)) tries.push_back(*std::move(now));
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
  if (folder_) {
    run_.record.made_from[row.id] = wanted_from(row);
    if (!(options_.restart && is_chosen(row))) left = folder_->left(row.id);
  }
  run_.results.push_back(result_of(run_.record, row.id, std::move(left)));
}

// Nothing for a row that cannot be run in this way at all, and that was not asked for.
std::string LabRunner::wanted_from(const Row& row) const {
  try {
    return work_->made_from(row);
  } catch (const UserError&) {
    return "";
  }
}

}  // namespace snug::lab
