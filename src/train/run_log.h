// Where a run's figures go: run.json, metrics.csv, TensorBoard, report.html, the terminal.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "config/recipe.h"
#include "report/live_line.h"
#include "report/metrics_csv.h"
#include "report/run_record.h"
#include "report/tensorboard.h"

namespace snug::train {

class RunLog {
 public:
  // Makes out_dir. `resumed_step`: keep what was logged up to there.
  RunLog(const config::Recipe& recipe, const std::string& command,
         std::optional<int64_t> resumed_step);

  report::RunRecord& record() { return record_; }
  void print(const std::string& text) { live_.print(text); }
  void step(const report::StepRecord& step, const report::LiveStatus& status);
  void validation(int64_t step, double loss, int64_t tokens);
  void end_line() { live_.finish(); }

  // Writes run.json and report.html. Never throws: a full disk must not hide the run's own end.
  void write() noexcept;

 private:
  std::filesystem::path out_dir_;
  int64_t log_interval_;
  report::RunRecord record_;
  report::LiveLine live_;
  std::unique_ptr<report::MetricsCsv> csv_;
  std::unique_ptr<report::TensorBoardWriter> tensorboard_;
};

}  // namespace snug::train
