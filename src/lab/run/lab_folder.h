// The folder of a lab run: whose it is, where a row's files are, and which rows are done.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/folder_lock.h"
#include "lab/result.h"

namespace snug::lab {

class LabFolder {
 public:
  // Makes it and takes it for this process alone, whose command others are told. Throws UserError
  // where it cannot be written, another lab is running in it, or it holds a run of another suite or
  // kind.
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

  // What an earlier run left there.
  const std::optional<LabRecord>& before() const { return before_; }
  // The result of a row that need not be done again: it came to an end that is a result, and was
  // made from the same. Others are read for their report alone.
  std::optional<RowResult> done(const std::string& id, const std::string& made_from) const;
  std::optional<RowResult> left(const std::string& id) const;

  // Whole or not at all. Throw UserError that says how to go on, such as of a full disk.
  void write(const LabRecord& record, const Suite& suite) const;
  void write(const RowResult& result) const;
  void write_plan(const std::string& id, const std::string& text) const;
  // An empty folder for a row that begins. Throws UserError where what is there cannot be removed:
  // an earlier run's files would be taken for this one's.
  void clear_row(const std::string& id) const;

 private:
  void write_file(const std::filesystem::path& file, const std::string& text) const;

  std::filesystem::path folder_;
  std::optional<FolderLock> lock_;
  std::optional<LabRecord> before_;
};

}  // namespace snug::lab
