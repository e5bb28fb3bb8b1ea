// log.txt, the text of a run: whole lines, appended and handed to the system at once, so that a run
// that is killed leaves all lines up to its last. What cannot be written (a full disk) is kept and
// tried again with the next line: the log never ends a run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>

namespace snug::report {

enum class LogStart { Anew, Append };

class LogFile {
 public:
  LogFile() = default;
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
  ~LogFile();

  // Text from before open() is kept until then. A missing newline is added.
  void write(std::string_view text);
  // Anew replaces an existing file. A last line that is not whole is ended before more is appended.
  void open(const std::filesystem::path& path, LogStart start);
  // The last lines: why the run ended ("": it was done) and how.
  void write_end(const std::string& outcome, const std::string& reason);
  // Why the last lines are not in the file; empty: they are.
  std::string fault() const;

 private:
  void flush();
  bool open_file();

  mutable std::mutex mutex_;
  std::filesystem::path path_;
  LogStart start_ = LogStart::Anew;
  int file_ = -1;
  std::string unwritten_, fault_;
};

// "2026-11-24 02:11:13 UTC".
std::string time_now();

}  // namespace snug::report
