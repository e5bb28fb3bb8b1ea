// SPDX-License-Identifier: Apache-2.0
#include "lab/run/lab_folder.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"

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

}  // namespace snug::lab
