// Writes a run's figures to run.json, metrics.csv, TensorBoard, report.html and the terminal, and
// all that it says to log.txt.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/log.h"
#include "core/dist/group.h"
#include "recipe/recipe.h"
#include "report/live_line.h"
#include "report/log_file.h"
#include "report/metrics_files.h"
#include "report/run_record.h"

namespace snug::train {

// The record of a run that is resumed from a checkpoint.
struct Resumed {
  int64_t step = 0;
  report::RunRecord before;  // from the checkpoint
};

class RunLog {
 public:
  // Makes out_dir. With `resumed`, the record starts with that of the run so far. Only one rank has
  // `writes_files`.
  RunLog(const recipe::Recipe& recipe, const std::string& command,
         const std::optional<Resumed>& resumed, bool writes_files);
  // Starts writing files in place of existing ones, keeping what was logged up to the step of
  // `resumed`.
  void open_files(const std::optional<Resumed>& resumed);

  report::RunRecord& record() { return record_; }
  // What runs in place of what was asked for, from here on.
  void set_recipe(const recipe::Recipe& recipe);
  void print(const std::string& text) { live_.print(text); }
  void step(const report::StepRecord& step, const report::StepStatus& status);
  void validation(const report::ValidationRecord& validation);
  // How many tokens each block's experts got in a step.
  void routed(const std::vector<double>& tokens, int64_t num_experts);
  void end_line() { live_.finish(); }

  // Whether out_dir no longer leads to what this run has written: its disk was unmounted, or the
  // folder moved or removed. The path may then lead to the disk below, which gets nothing.
  bool has_lost_folder() const;
  // Throws UserError on all ranks if so. Null: this process asks for itself.
  void check_folder(dist::Group* ranks = nullptr) const;

  // The plan of this process. Measured peaks from before a resumption are kept only if the plan is
  // the same: with other ranks, techniques or batches they do not compare.
  void planned(const report::MemoryPeaks& peaks);
  // Peaks and wall seconds of this process, from which the record gets those of the whole run.
  void measured(const report::MemoryPeaks& peaks, double seconds);

  // The current record, for a checkpoint; and the same written as run.json, so that a killed run
  // leaves one. Never throws.
  std::string unfinished() const;
  void write_unfinished() const noexcept;

  // Writes run.json and report.html. Never throws: a full disk must not hide the run's own end.
  // Returns what went wrong; empty: nothing.
  std::string write() const noexcept;
  // The last lines of log.txt: how the run ended, and why.
  void log_end(const std::string& outcome, const std::string& reason);

 private:
  void log_recipe(const recipe::Recipe& recipe, const std::optional<Resumed>& resumed);
  void open_tensorboard(const std::optional<Resumed>& resumed);
  void draw(const report::StepRecord& step, int64_t peak_allocated);

  std::filesystem::path out_dir_;
  bool may_write_;
  bool writes_files_ = false;
  bool draws_;
  std::filesystem::path earlier_rows_;
  int64_t log_interval_;
  report::MemoryPeaks peaks_before_;  // of rank 0
  std::optional<report::MemoryPeaks> planned_before_;
  double seconds_before_ = 0;
  report::RunRecord record_;
  report::LogFile text_;
  std::optional<LogSinkGuard> messages_;  // writes to live_, whose own guard goes first
  report::LiveLine live_;
  std::vector<std::string> figures_;  // that the objective measures
  std::unique_ptr<report::MetricsCsv> csv_;
  std::unique_ptr<report::TensorBoardWriter> tensorboard_;
};

}  // namespace snug::train
