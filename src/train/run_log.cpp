// SPDX-License-Identifier: Apache-2.0
#include "train/run_log.h"

#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "config/print.h"
#include "memory/ledger.h"
#include "report/loss_plot.h"

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

}  // namespace

RunLog::RunLog(const config::Recipe& recipe, const std::string& command,
               std::optional<int64_t> resumed_step)
    : out_dir_(make_folder(recipe.out_dir)),
      log_interval_(std::max<int64_t>(1, recipe.train.log_interval)),
      live_(stderr, ::isatty(STDERR_FILENO) == 1) {
  record_.command = command;
  record_.recipe = config::recipe_json(recipe);
  csv_ = std::make_unique<report::MetricsCsv>(out_dir_ / "metrics.csv", resumed_step);
  if (recipe.logger_name == "tensorboard")
    tensorboard_ = std::make_unique<report::TensorBoardWriter>(
        out_dir_ / "tensorboard", report::TensorBoardOptions{.resumed_step = resumed_step});
}

void RunLog::step(const report::StepRecord& step, const report::LiveStatus& status) {
  record_.steps.push_back(step);
  live_.update(status);
  if (step.step % log_interval_ != 0) return;
  const double rate = step.seconds > 0 ? static_cast<double>(step.tokens) / step.seconds : 0;
  csv_->write({.step = step.step,
               .loss = step.loss,
               .tokens = step.tokens,
               .padded_tokens = step.padded_tokens,
               .tokens_per_second = rate,
               .lr = step.lr,
               .grad_norm = step.grad_norm,
               .seconds = step.seconds,
               .peak_allocated = status.memory_bytes,
               .peak_reserved = memory::cpu_reserved()});
  if (!tensorboard_) return;
  tensorboard_->scalar("loss", step.loss, step.step);
  tensorboard_->scalar("lr", step.lr, step.step);
  tensorboard_->scalar("grad_norm", step.grad_norm, step.step);
  tensorboard_->scalar("tokens_per_second", rate, step.step);
  tensorboard_->scalar("memory/peak_allocated", static_cast<double>(status.memory_bytes),
                       step.step);
}

void RunLog::validation(int64_t step, double loss, int64_t tokens) {
  record_.validation.push_back({.step = step, .loss = loss, .tokens = tokens});
  csv_->write_validation(step, loss);
  if (tensorboard_) tensorboard_->scalar("val_loss", loss, step);
}

void RunLog::write() noexcept {
  try {
    report::write_run_json(record_, out_dir_ / "run.json");
    report::write_report_html(record_, out_dir_ / "report.html");
  } catch (const std::exception& error) {
    log_warning(std::string("the run's record could not be written: ") + error.what());
  }
}

}  // namespace snug::train
