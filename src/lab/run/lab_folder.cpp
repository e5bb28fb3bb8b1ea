// SPDX-License-Identifier: Apache-2.0
#include "lab/run/lab_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "lab/report/explain.h"
#include "report/tables.h"
#include "report/text_width.h"

namespace snug::lab {
namespace {

namespace fs = std::filesystem;

void make(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw UserError("cannot make the folder {}: {}; choose another with --out_dir", folder.string(),
                    error.message());
}

bool is_result(Outcome outcome) {
  return outcome == Outcome::Ok || outcome == Outcome::OutOfMemory;
}

}  // namespace

LabFolder::LabFolder(fs::path folder, const std::string& suite, Mode mode,
                     const std::string& command)
    : folder_(std::move(folder)) {
  make(folder_ / "rows");
  lock_.emplace(LockWish{
      .target = folder_,
      .command = command,
      .remedy =
          fmt::format("choose another --out_dir (snug monitor {} shows it)", folder_.string())});
  remove_abandoned(folder_);
  if (!fs::exists(folder_ / "lab.json")) return;
  before_ = read_lab_json(folder_ / "lab.json");
  if (before_->suite != suite || before_->mode != name(mode))
    throw UserError(
        "{} holds a run of suite {} (mode {}), and this is a run of {} (mode {}); choose another "
        "folder with --out_dir",
        folder_.string(), before_->suite, before_->mode, suite, name(mode));
}

std::optional<RowResult> LabFolder::left(const std::string& id) const {
  const fs::path file = row_folder(id) / "row.json";
  if (!fs::exists(file)) return std::nullopt;
  try {
    return read_row_json(file);
  } catch (const UserError& error) {
    warn("{}; the row is run again", error.what());
    return std::nullopt;
  }
}

std::optional<RowResult> LabFolder::done(const std::string& id,
                                         const std::string& made_from) const {
  std::optional<RowResult> result = left(id);
  if (result && is_result(result->outcome) && result->made_from == made_from) return result;
  return std::nullopt;
}

void LabFolder::write_file(const fs::path& file, const std::string& text) const {
  try {
    write_file_atomically(file, text);
  } catch (const UserError& error) {
    throw UserError(
        "{}\nFinished rows are kept in {}; once the disk is writable again, the same command "
        "continues there",
        error.what(), folder_.string());
  }
}

void LabFolder::write(const LabRecord& record, const Suite& suite) const {
  write_file(folder_ / "suite.json", suite_json(suite));
  write_file(folder_ / "lab.json", lab_json(record));
}

void LabFolder::write(const RowResult& result) const {
  make(row_folder(result.id));
  write_file(row_folder(result.id) / "row.json", row_json(result));
}

void LabFolder::write_plan(const std::string& id, const std::string& text) const {
  make(row_folder(id));
  write_file(row_folder(id) / "plan.json", text);
}

void LabFolder::clear_row(const std::string& id) const {
  std::error_code error;
  fs::remove_all(row_folder(id), error);
  if (error)
    throw UserError(
        "cannot remove {} from an earlier run of row {}: {}; remove it, or choose another folder "
        "with --out_dir",
        row_folder(id).string(), id, error.message());
  make(row_folder(id));
}

namespace {

using nlohmann::json;

// A faulty file must not hide the others.
std::vector<Suite> read_all(const std::vector<std::filesystem::path>& files) {
  std::vector<Suite> suites;
  for (const std::filesystem::path& file : files) {
    try {
      suites.push_back(read_suite(file));
    } catch (const UserError& error) {
      warn("{}", error.what());
    }
  }
  return suites;
}

int64_t num_searches(const Suite& suite) {
  return std::ranges::count(suite.groups, Group::Kind::Search, &Group::kind);
}

std::string rows_text(const Suite& suite) {
  const int64_t searches = num_searches(suite);
  std::string text = std::to_string(suite.rows.size());
  if (searches > 0) text += fmt::format(" + {} search{}", searches, searches == 1 ? "" : "es");
  return text;
}

// Lines no wider than the terminal: the last column gives way. Elsewhere they are whole.
std::string cut(const std::string& table, int width) {
  if (width <= 0) return table;
  const auto columns = static_cast<size_t>(width);
  std::string text;
  for (size_t at = 0; at < table.size();) {
    const size_t end = std::min(table.find('\n', at), table.size());
    std::string line = table.substr(at, end - at);
    const bool is_rule = line.starts_with("─");
    if (report::display_width(line) > columns)
      line = report::fit_columns(line, is_rule ? columns : columns - 1) + (is_rule ? "" : "…");
    text += line + '\n';
    at = end + 1;
  }
  return text;
}

LabRun without_results(const Suite& suite) {
  LabRun run{.folder = {}, .record = {}, .suite = suite, .rows = suite.rows};
  for (const Row& row : suite.rows) run.results.push_back({.id = row.id});
  return run;
}

std::string expected_text(const Row& row) {
  if (!row.not_run.empty()) return "not run";
  return row.expected == Expected::Unknown ? "-" : name(row.expected);
}

std::string changes_of(const LabRun& run, const Row& row) {
  if (!row.not_run.empty()) return row.not_run;
  return row.change.empty() ? changes_text(run, row) : row.change;
}

}  // namespace

std::string list_suites_text(const std::vector<std::filesystem::path>& files, int width) {
  report::Table table({{"suite", report::Align::Left},
                       {"rows", report::Align::Left},
                       {"plans for", report::Align::Left},
                       {"what", report::Align::Left}});
  for (const Suite& suite : read_all(files))
    table.add_row({suite.name, rows_text(suite), suite.device, suite.title});
  return cut(table.render(), width) +
         "\nsnug lab list SUITE shows its rows, snug lab run SUITE --plan predicts them.\n";
}

std::string list_suites_json(const std::vector<std::filesystem::path>& files) {
  json list = json::array();
  for (const Suite& suite : read_all(files))
    list.push_back({{"suite", suite.name},
                    {"title", suite.title},
                    {"about", suite.about},
                    {"source", suite.source},
                    {"device", suite.device},
                    {"rows", suite.rows.size()},
                    {"searches", num_searches(suite)},
                    {"file", suite.file.string()}});
  return list.dump(1) + "\n";
}

std::string list_rows_text(const Suite& suite, int width) {
  std::string text = fmt::format("{}: {}\n", suite.name, suite.title);
  if (!suite.source.empty()) text += fmt::format("Published in {}\n", suite.source);
  text += fmt::format("Plans are for {}\n\n", suite.device.empty() ? "this machine" : suite.device);
  report::Table table({{"row", report::Align::Left},
                       {"title", report::Align::Left},
                       {"model", report::Align::Left},
                       {"expected", report::Align::Left},
                       {"what changes", report::Align::Left}});
  const LabRun run = without_results(suite);
  for (const Row& row : suite.rows)
    table.add_row({row.id, row.title, row.model, expected_text(row), changes_of(run, row)});
  text += cut(table.render(), width);
  for (const Group& group : suite.groups)
    if (group.kind == Group::Kind::Search)
      text += fmt::format("\nSearch {}: {} ({} from {} to {})\n", group.id, group.title, group.over,
                          group.smallest, group.largest);
  return text;
}

}  // namespace snug::lab
