// What is known of one rank from outside: a small file beside its log, kept by the process that
// watches over it, and read by the one that tells the person how the run ended.
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
  Communication,  // it lost another rank, so it is not to blame
  InternalError,
  Exited,   // with an exit code, and without a word of why
  Killed,   // by a signal
  Silent,   // it gave no sign of life, and its keeper ended it
  Stopped,  // ended on orders, for what happened elsewhere
};

struct RankRecord {
  std::string job;  // which start of processes it belongs to
  int rank = 0;
  std::string host;
  int64_t process = 0;
  int64_t keeper = 0;
  Ending ending = Ending::Running;
  int exit_code = 0;
  int signal = 0;
  bool machine_out_of_memory = false;  // the kernel killed for memory while it ran
  std::string text;                    // its own error
  std::string activity;                // what it was doing then
};

// Whole or absent. False where it cannot be written, on a full disk for example.
bool write_record(const std::filesystem::path& folder, const RankRecord& record);
// Nothing where there is none, or one of another job.
std::optional<RankRecord> read_record(const std::filesystem::path& folder, int rank,
                                      const std::string& job);
// Tells whoever reads it that the keeper is there. Takes no room on the disk.
void touch_record(const std::filesystem::path& folder, int rank);
// Changes with each touch; 0 where there is no record.
int64_t touched_at(const std::filesystem::path& folder, int rank);

// The job is over for all: a rank that still runs is to be ended.
bool write_job_end(const std::filesystem::path& folder, const std::string& job);
bool is_job_over(const std::filesystem::path& folder, const std::string& job);

// Removes logs, records and pages that an earlier run left.
void clear_folder(const std::filesystem::path& folder);

// "SIGKILL (9)"
std::string signal_text(int signal_number);

}  // namespace snug::launch
