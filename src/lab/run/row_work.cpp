// SPDX-License-Identifier: Apache-2.0
#include "lab/run/row_work.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/program.h"
#include "lab/collect.h"
#include "lab/run/row_process.h"
#include "recipe/gpus.h"
#include "recipe/parse.h"
#include "recipe/print.h"
#include "report/live_status.h"

namespace snug::lab {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr double kPlanSeconds = 900;  // a plan that takes longer hangs
constexpr uintmax_t kMostRead = uintmax_t{4} << 20;

// FNV-1a, to notice a change; not against anyone.
uint64_t digest(const std::string& text) {
  uint64_t hash = 14695981039346656037U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash;
}

// Identifies a file by its contents, or by its size if it is large. Empty if it is not a file.
std::string content_of(const std::string& word) {
  std::error_code error;
  if (!fs::is_regular_file(word, error)) return "";
  const uintmax_t size = fs::file_size(word, error);
  if (error || size > kMostRead) return fmt::format("{} bytes", size);
  return fmt::format("{:016x}", digest(read_file(word)));
}

std::string words_text(const Words& words) {
  std::string text;
  for (const std::string& word : words) {
    text += ' ' + word;
    if (const std::string content = content_of(word); !content.empty()) text += '#' + content;
  }
  return text;
}

std::optional<report::LiveState> live_state(const fs::path& out_dir) {
  const fs::path file = report::live_file(out_dir, 0);
  if (!fs::exists(file)) return std::nullopt;
  try {
    return report::read_live_json(file);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

// The last measurements in the live status of a run that left no record.
void take_live(const fs::path& out_dir, RowResult& result) {
  const std::optional<report::LiveState> live = live_state(out_dir);
  if (!live || live->step == 0) return;
  result.measured = Figures{.fits = false,
                            .peak_allocated = live->peak,
                            .by_category = live->peak_by_category,
                            .step_seconds = live->step_seconds,
                            .tokens_per_second = live->tokens_per_second};
}

// The run took its end for a wish of the person's, and who watches it is to see why it ended.
void note_time_out(const fs::path& out_dir, const std::string& reason) {
  std::optional<report::LiveState> live = live_state(out_dir);
  if (!live) return;
  live->state = "ended";
  live->outcome = name(Outcome::TimedOut);
  live->reason = reason;
  try {
    write_file_atomically(report::live_file(out_dir, 0), report::live_json(*live));
  } catch (const UserError&) {  // it is for the eye alone
  }
}

// The recipe of a row's arguments. Invalid arguments are left to check_words().
recipe::Recipe recipe_of(const Words& words) {
  try {
    return recipe::parse_command_line(words).recipe;
  } catch (const UserError&) {
    return {};
  }
}

// Warnings about an end that still counts as a result.
void add_remarks(const ProcessEnd& end, RowResult& result) {
  const auto add = [&](const std::string& remark) {
    if (!result.reason.empty()) result.reason += "; ";
    result.reason += remark;
  };
  if (!end.output_fault.empty()) add(end.output_fault);
  if (end.survivors > 0)
    add(fmt::format("{} process{} that it started outlived it and {} stopped", end.survivors,
                    end.survivors == 1 ? "" : "es", end.survivors == 1 ? "was" : "were"));
}

// The command that the report shows, without --json, which only the lab wants.
std::string without_json(Words words) {
  std::erase(words, "--json");
  return recipe::print_command(words);
}

}  // namespace

Settings read_settings(const std::vector<std::string>& texts) {
  Settings settings;
  for (const std::string& text : texts) {
    const size_t at = text.find('=');
    if (at == std::string::npos || at == 0)
      throw UserError("--set {}: must be KEY=VALUE, as in --set train.max_steps=10", text);
    std::string key = text.substr(0, at);
    if (key.starts_with("--")) key.erase(0, 2);
    settings.emplace_back(std::move(key), text.substr(at + 1));
  }
  return settings;
}

Words on_this_machine(Words plan_words, const std::string& gpu) {
  if (!gpu.empty() && recipe_of(plan_words).accelerator != "cpu")
    plan_words.insert(plan_words.end(), {"--device", gpu});
  return plan_words;
}

Words RowWork::plan_words(const Row& row) const {
  Words words = lab::plan_words(suite_, row, mode_, extra_);
  return mode_ == Mode::Run ? on_this_machine(std::move(words), gpu_profile_) : words;
}

// A row that was planned not to fit is to run out of memory all the same.
Words RowWork::run_words(const Row& row, const fs::path& out_dir) const {
  Settings settings{{"force", "true"}};
  settings.insert(settings.end(), extra_.begin(), extra_.end());
  return lab::run_words(suite_, row, mode_, settings, out_dir);
}

fs::path RowWork::out_dir(const Row& row) const {
  return folder_ != nullptr ? folder_->out_dir(row.id) : fs::path("out") / row.id;
}

double RowWork::run_timeout() const {
  if (row_timeout_ > 0) return row_timeout_;
  return mode_ == Mode::Scaled ? suite_.scaled_row_timeout_seconds : suite_.row_timeout_seconds;
}

// As --device of plans has it; empty: none, or not in the table.
std::string RowWork::profile_of(const std::string& gpu) {
  const recipe::Gpu* known = recipe::gpu_by_cuda_name(gpu);
  return known == nullptr ? std::string() : std::string(known->profile);
}

std::string RowWork::made_from(const Row& row) const {
  std::string text = fmt::format("snug {}:{}", kVersion, words_text(plan_words(row)));
  if (mode_ != Mode::Plan) text += " |" + words_text(run_words(row, "OUT"));
  return text;
}

void RowWork::check_words(const Row& row) const {
  try {
    recipe::parse_command_line(plan_words(row));
    if (mode_ != Mode::Plan) recipe::parse_command_line(run_words(row, out_dir(row)));
  } catch (const UserError& error) {
    throw UserError("row {}: {}", row.id, error.what());
  }
}

bool RowWork::is_for_processor(const Row& row) const {
  return recipe_of(run_words(row, out_dir(row))).accelerator == "cpu";
}

bool RowWork::has_budget(const Row& row) const {
  return !recipe_of(run_words(row, out_dir(row))).memory_budget.empty();
}

RowResult RowWork::empty_result(const Row& row) const {
  RowResult result{.id = row.id, .made_from = made_from(row)};
  result.plan_command = without_json(plan_words(row));
  result.command = mode_ == Mode::Plan ? result.plan_command
                                       : recipe::print_command(run_words(row, out_dir(row)));
  return result;
}

RowResult RowWork::plan(const Row& row) const {
  RowResult result = empty_result(row);
  std::string text;
  const ProcessEnd end =
      run_process({.words = plan_words(row),
                   .output = {},
                   .timeout_seconds = row_timeout_ > 0 ? row_timeout_ : kPlanSeconds,
                   .tick = {},
                   .stop_wanted = StopWish::wanted},
                  &text);
  result.seconds = end.seconds;
  collect_plan(text, end, result);
  if (folder_ != nullptr && result.predicted) folder_->write_plan(row.id, text);
  return result;
}

RowResult RowWork::run(const Row& row, const std::function<void(const RowStatus&)>& show) const {
  show({.id = row.id, .doing = "planning", .live = {}});
  RowResult result = plan(row);
  // A row that cannot be planned may still run, unless its recipe is at fault.
  if (!result.predicted && result.outcome != Outcome::Crashed) return result;
  const fs::path out = out_dir(row);
  const auto look = [&] { show({.id = row.id, .doing = "starting", .live = live_state(out)}); };
  look();
  const ProcessEnd end = run_process({.words = run_words(row, out),
                                      .output = folder_->output(row.id),
                                      .timeout_seconds = run_timeout(),
                                      .tick = look,
                                      .stop_wanted = StopWish::wanted});
  result.seconds += end.seconds;
  collect_run(out, end, result);
  if (result.outcome == Outcome::TimedOut) {
    if (!result.measured) take_live(out, result);
    note_time_out(out, result.reason);
  }
  add_remarks(end, result);
  return result;
}

}  // namespace snug::lab
