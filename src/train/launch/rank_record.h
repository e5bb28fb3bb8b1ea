// The state of one rank, in a small file beside its log: written by its keeper, and read by the
// process that tells the user how the run ended.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace snug::launch {

// Where ranks leave logs, status pages and records.
std::filesystem::path logs_folder(const std::string& out_dir);
std::filesystem::path log_file(const std::filesystem::path& folder, int rank);

enum class Ending {
  Running,
  Done,
  UserError,
  OutOfMemory,
  Interrupted,    // stopped after a step, on request
  Communication,  // lost another rank, which is the cause
  InternalError,
  Exited,   // with an exit code and without a message
  Killed,   // by a signal
  Silent,   // not responding; its keeper killed it
  Stopped,  // killed because another rank failed
};

struct RankRecord {
  std::string job;  // identifies one start of all processes
  int rank = 0;
  std::string host;
  int64_t process = 0;
  int64_t keeper = 0;
  Ending ending = Ending::Running;
  int exit_code = 0;
  int signal = 0;
  bool machine_out_of_memory = false;  // the kernel killed a process for memory meanwhile
  std::string text;                    // the rank's own error
  std::string activity;                // what the rank was doing then
};

// Atomic. False if it cannot be written, for example on a full disk.
bool write_record(const std::filesystem::path& folder, const RankRecord& record);
// Empty if there is none, or only one of another job.
std::optional<RankRecord> read_record(const std::filesystem::path& folder, int rank,
                                      const std::string& job);
// Shows that the keeper is alive. Takes no disk space.
void touch_record(const std::filesystem::path& folder, int rank);
// Changes with each touch; 0 if there is no record.
int64_t touched_at(const std::filesystem::path& folder, int rank);

// Marks the job as over: keepers then kill ranks that still run.
bool write_job_end(const std::filesystem::path& folder, const std::string& job);
bool is_job_over(const std::filesystem::path& folder, const std::string& job);

// Removes logs, records and status pages of an earlier run.
void clear_folder(const std::filesystem::path& folder);

// "SIGKILL (9)"
std::string signal_text(int signal_number);

}  // namespace snug::launch
