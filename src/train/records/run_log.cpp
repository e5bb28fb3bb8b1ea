// SPDX-License-Identifier: Apache-2.0
#include "train/records/run_log.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/program.h"
#include "base/text.h"
#include "core/dist/agreement.h"
#include "engine/steps/objective.h"
#include "recipe/print.h"
#include "report/run_page.h"
#include "report/thinning.h"

namespace snug::train {
namespace {

std::filesystem::path make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw UserError("cannot make the folder out_dir = {}: {}; choose another with --out_dir",
                    folder.string(), error.message());
  if (::access(folder.c_str(), W_OK) != 0)
    throw UserError("cannot write into out_dir = {}; choose another with --out_dir",
                    folder.string());
  return folder;
}

// Starts the record of a resumed run with what happened up to the checkpoint.
void begin_with(const Resumed& resumed, report::RunRecord& record) {
  record.steps = resumed.before.steps;
  record.epochs = resumed.before.epochs;
  record.validation = resumed.before.validation;
  record.best = resumed.before.best;
  record.experts = resumed.before.experts;
  record.sources = resumed.before.sources;
  record.fit_seconds = resumed.before.fit_seconds;
  record.memory.phases = resumed.before.memory.phases;
  record.resumptions = resumed.before.resumptions;
  record.resumptions.push_back(
      {.step = resumed.step, .seconds_total = resumed.before.seconds_total});
}

// The metrics from before a checkpoint that was given by its folder: beside that folder. Empty if
// that is in out_dir itself.
std::filesystem::path earlier_rows(const std::string& resume,
                                   const std::filesystem::path& out_dir) {
  if (resume == "true" || resume == "auto" || resume == "false") return {};
  const auto whole = [](const std::filesystem::path& path) {
    return std::filesystem::absolute(path / "").lexically_normal().parent_path();
  };
  const std::filesystem::path folder = whole(resume).parent_path();
  return folder == whole(out_dir) ? std::filesystem::path() : folder / "metrics.csv";
}

double rate_of(const report::StepRecord& step) {
  return step.seconds > 0 ? static_cast<double>(step.tokens) / step.seconds : 0;
}

}  // namespace

RunLog::RunLog(const recipe::Recipe& recipe, const std::string& command,
               const std::optional<Resumed>& resumed, bool writes_files)
    : out_dir_(make_folder(recipe.out_dir)),
      may_write_(writes_files),
      draws_(recipe.logger_name == recipe::Logger::Tensorboard),
      earlier_rows_(earlier_rows(recipe.resume, out_dir_)),
      log_interval_(std::max<int64_t>(1, recipe.train.log_interval)),
      live_(stderr, ::isatty(STDERR_FILENO) == 1,
            {.interval = log_interval_, .copy = [this](std::string_view text) {
               if (may_write_) text_.write(text);
             }}) {
  figures_ = engine::validation_objective(recipe)->figures();
  record_.command = command;
  record_.recipe = recipe::recipe_json(recipe);
  log_recipe(recipe, resumed);
  messages_.emplace([this](const std::string& text) { print(text); });
  if (!resumed) return;
  begin_with(*resumed, record_);
  if (may_write_) peaks_before_ = resumed->before.memory.measured;
  planned_before_ = resumed->before.memory.predicted;
  seconds_before_ = resumed->before.seconds_total;
}

void RunLog::log_recipe(const recipe::Recipe& recipe, const std::optional<Resumed>& resumed) {
  const std::string yaml = recipe::print_recipe_yaml(recipe);
  detail("Recipe\n{}", yaml);
  if (!may_write_) return;
  const std::string start =
      resumed ? fmt::format("resumed at step {}", resumed->step) : std::string("started");
  text_.write(fmt::format("{}  snug {}, {} on {}\n{}\n\n{}\n{}", report::time_now(), kVersion,
                          start, host_name(), record_.command, yaml, warnings_so_far()));
}

void RunLog::set_recipe(const recipe::Recipe& recipe) {
  record_.recipe = recipe::recipe_json(recipe);
  const std::string yaml = recipe::print_recipe_yaml(recipe);
  detail("Recipe that fits\n{}", yaml);
  if (may_write_) text_.write("The recipe that fits\n\n" + yaml + "\n");
}

void RunLog::log_end(const std::string& outcome, const std::string& reason) {
  if (!may_write_) return;
  text_.write_end(outcome, printable_lines(reason));
  if (const std::string fault = text_.fault(); !fault.empty())
    log_warning(fmt::format("{} lacks its last lines: {}", (out_dir_ / "log.txt").string(), fault));
}

void RunLog::open_files(const std::optional<Resumed>& resumed) {
  if (!may_write_) return;
  text_.open(out_dir_ / "log.txt", resumed ? report::LogStart::Append : report::LogStart::Anew);
  std::optional<report::LoggedUntil> logged;
  if (resumed) {
    const auto& validation = resumed->before.validation;
    logged = {.step = resumed->step,
              .validation = validation.empty() ? -1 : validation.back().step};
  }
  csv_ = std::make_unique<report::MetricsCsv>(out_dir_ / "metrics.csv", logged, earlier_rows_,
                                              figures_);
  writes_files_ = true;
  if (draws_) open_tensorboard(resumed);
  write_unfinished();
}

// The step of the checkpoint is written again: a validation that followed the checkpoint will be
// repeated, and TensorBoard can only drop whole steps.
void RunLog::open_tensorboard(const std::optional<Resumed>& resumed) {
  report::TensorBoardOptions options;
  if (resumed) options.resumed_step = resumed->step - 1;
  tensorboard_ =
      std::make_unique<report::TensorBoardWriter>(out_dir_ / "tensorboard", std::move(options));
  if (!resumed || record_.steps.empty()) return;
  if (resumed->step % log_interval_ == 0)
    draw(record_.steps.back(), resumed->before.memory.measured.peak_allocated);
  if (!record_.validation.empty() && record_.validation.back().step == resumed->step)
    tensorboard_->scalar("val_loss", record_.validation.back().loss, resumed->step);
}

void RunLog::draw(const report::StepRecord& step, int64_t peak_allocated) {
  tensorboard_->scalar("loss", step.loss, step.step);
  tensorboard_->scalar("lr", step.lr, step.step);
  tensorboard_->scalar("grad_norm", step.grad_norm, step.step);
  tensorboard_->scalar("tokens_per_second", rate_of(step), step.step);
  for (const auto& [name, value] : step.figures) tensorboard_->scalar(name, value, step.step);
  if (step.expert_load > 0) tensorboard_->scalar("expert_load", step.expert_load, step.step);
  tensorboard_->scalar("memory/peak_allocated", static_cast<double>(peak_allocated), step.step);
}

void RunLog::planned(const report::MemoryPeaks& peaks) {
  record_.memory.predicted = peaks;
  if (!planned_before_ || planned_before_->peak_allocated == peaks.peak_allocated) return;
  peaks_before_ = {};
  record_.memory.phases.clear();
}

void RunLog::measured(const report::MemoryPeaks& peaks, double seconds) {
  report::MemoryPeaks& whole = record_.memory.measured;
  whole = peaks_before_.peak_allocated > peaks.peak_allocated ? peaks_before_ : peaks;
  whole.peak_reserved = std::max(peaks_before_.peak_reserved, peaks.peak_reserved);
  whole.peak_host = std::max(peaks_before_.peak_host, peaks.peak_host);
  whole.num_alloc_retries = peaks_before_.num_alloc_retries + peaks.num_alloc_retries;
  record_.seconds_total = seconds_before_ + seconds;
}

bool RunLog::has_lost_folder() const {
  if (!writes_files_) return false;
  std::error_code unknown;  // a disk that does not answer makes the next write fail
  return std::ranges::none_of(std::array{"metrics.csv", "log.txt"}, [&](const char* name) {
    return std::filesystem::exists(out_dir_ / name, unknown) || unknown;
  });
}

void RunLog::check_folder(dist::Group* ranks) const {
  dist::agree(ranks, [this]() -> std::string {
    if (!has_lost_folder()) return "";
    throw UserError(
        "{} no longer holds what this run has written there: its disk was unmounted, or the folder "
        "moved or removed; bring it back, and the same command with --resume auto goes on from "
        "the last checkpoint there",
        out_dir_.string());
  });
}

std::string RunLog::unfinished() const {
  report::RunRecord record = record_;
  record.outcome = "unfinished";
  return report::run_json(record);
}

void RunLog::write_unfinished() const noexcept {
  if (!writes_files_) return;
  try {
    check_folder();
    write_file_atomically(out_dir_ / "run.json", unfinished());
  } catch (const std::exception& error) {
    log_warning(std::string("the run's record could not be written: ") + error.what());
  }
}

void RunLog::step(const report::StepRecord& step, const report::StepStatus& status) {
  report::add(record_.steps, step);
  report::add(record_.epochs, step);
  live_.update(status);
  if (!writes_files_ || step.step % log_interval_ != 0) return;
  csv_->write({.step = step.step,
               .loss = step.loss,
               .tokens = step.tokens,
               .padded_tokens = step.padded_tokens,
               .tokens_per_second = rate_of(step),
               .lr = step.lr,
               .grad_norm = step.grad_norm,
               .seconds = step.seconds,
               .peak_allocated = status.memory_bytes,
               .peak_reserved = status.reserved_bytes,
               .figures = step.figures});
  if (tensorboard_) draw(step, status.memory_bytes);
}

void RunLog::routed(const std::vector<double>& tokens, int64_t num_experts) {
  report::add(record_.experts, tokens, num_experts);
}

void RunLog::validation(const report::ValidationRecord& validation) {
  report::add(record_.validation, validation);
  live_.validated(validation.loss);
  if (writes_files_) csv_->write_validation(validation.step, validation.loss, validation.figures);
  if (!tensorboard_) return;
  tensorboard_->scalar("val_loss", validation.loss, validation.step);
  for (const auto& [name, value] : validation.figures)
    tensorboard_->scalar("val_" + name, value, validation.step);
  for (const auto& [source, loss] : validation.sources)
    tensorboard_->scalar("val_loss/" + source, loss, validation.step);
}

std::string RunLog::write() const noexcept {
  if (!writes_files_) return "";
  std::string fault;
  const auto attempt = [&](const auto& write) {
    try {
      check_folder();
      write();
    } catch (const std::exception& error) {
      fault = error.what();
    }
  };
  attempt([&] { report::write_report_html(record_, out_dir_ / "report.html"); });
  attempt([&] { report::write_run_json(record_, out_dir_ / "run.json"); });
  return fault;
}

}  // namespace snug::train
