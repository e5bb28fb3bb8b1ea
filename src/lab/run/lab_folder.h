// The folder of a lab run: its lock, the files of its rows, and which rows are done.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/folder_lock.h"
#include "lab/result.h"
#include "lab/suite/suite.h"

namespace snug::lab {

class LabFolder {
 public:
  // Makes the folder and locks it; `command` is shown to others who try to. Throws UserError if it
  // cannot be written, another lab is running in it, or it has a run of another suite or mode.
  LabFolder(std::filesystem::path folder, const std::string& suite, Mode mode,
            const std::string& command);
  LabFolder(const LabFolder&) = delete;
  LabFolder& operator=(const LabFolder&) = delete;

  const std::filesystem::path& path() const { return folder_; }
  std::filesystem::path row_folder(const std::string& id) const { return folder_ / "rows" / id; }
  std::filesystem::path out_dir(const std::string& id) const { return row_folder(id) / "run"; }
  std::filesystem::path output(const std::string& id) const {
    return row_folder(id) / "output.log";
  }

  // The record of an earlier run in this folder.
  const std::optional<LabRecord>& before() const { return before_; }
  // The result of a row that need not run again: it has an outcome that counts and the same
  // made_from.
  std::optional<RowResult> done(const std::string& id, const std::string& made_from) const;
  // Any stored result of a row.
  std::optional<RowResult> left(const std::string& id) const;

  // Atomic. Throw UserError that says how to continue, for example after a full disk.
  void write(const LabRecord& record, const Suite& suite) const;
  void write(const RowResult& result) const;
  void write_plan(const std::string& id, const std::string& text) const;
  // Empties a row's folder before it starts. Throws UserError if earlier files cannot be removed:
  // they would be taken for this run's.
  void clear_row(const std::string& id) const;

 private:
  void write_file(const std::filesystem::path& file, const std::string& text) const;

  std::filesystem::path folder_;
  std::optional<FolderLock> lock_;
  std::optional<LabRecord> before_;
};

// snug lab list: all suites, or the rows of one. `width`: of the terminal; 0: not cut.

std::string list_suites_text(const std::vector<std::filesystem::path>& files, int width);
std::string list_suites_json(const std::vector<std::filesystem::path>& files);
std::string list_rows_text(const Suite& suite, int width);

}  // namespace snug::lab
