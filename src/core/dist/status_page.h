// A rank's status, readable by other processes even while it hangs: a one-page file that the rank
// has memory-mapped. Writing costs no system call, and the last status survives the process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

namespace snug::dist {

enum class RankState : int32_t { Joining, Running, Ended, Failed };
const char* name(RankState);

struct RankStatus {
  int rank = 0;
  int size = 1;
  int64_t pid = 0;
  std::string host;
  std::string processes;  // the pid's namespace, since containers have their own
  RankState state = RankState::Joining;
  int64_t started = 0;     // collectives, in all groups
  int64_t finished = 0;    // one less than `started` while it hangs in one
  std::string unit;        // of the current or last collective
  std::string collective;  // "all-gather of group shard (#12)"
  std::string activity;    // "step 12"
  std::string failure;     // the reason of its failure
  double heartbeat = 0;    // seconds since 1970: last sign of life of its communication thread
};

struct StatusRecord;  // the file's layout

class StatusPage {
 public:
  // With an empty `folder` there is no file. Throws UserError if it cannot be made.
  StatusPage(const std::filesystem::path& folder, int rank, int size);
  ~StatusPage();
  StatusPage(const StatusPage&) = delete;
  StatusPage& operator=(const StatusPage&) = delete;

  void set_state(RankState state);
  void set_failure(const std::string& why);
  void set_activity(const std::string& activity);
  void collective_started(const std::string& unit, const std::string& collective);
  void collective_finished();
  void beat();

 private:
  template <class Change>
  void write(const Change& change);

  std::mutex mutex_;
  StatusRecord* record_;
};

std::filesystem::path status_file(const std::filesystem::path& folder, int rank);

// None if there is no such file, or it is not complete yet.
std::optional<RankStatus> read_status(const std::filesystem::path& folder, int rank);

// "rank 3 (node1, pid 4242): in all-gather of group shard (#12), unit layers.3; step 12; last sign
// of life 2 s ago"
std::string describe(const RankStatus& status);

// Whether its process was on this machine and has ended.
bool is_gone(const RankStatus& status);

}  // namespace snug::dist
