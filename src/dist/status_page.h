// What a rank is doing, readable from outside while it hangs: a file of one page that the rank has
// mapped into its memory. Writing costs no system call, and what was written last stays there when
// the process dies.
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
  std::string processes;  // the set of processes that the pid is one of: containers have their own
  RankState state = RankState::Joining;
  int64_t started = 0;     // collectives, in all groups
  int64_t finished = 0;    // a rank that hangs in one has one more of those started
  std::string unit;        // of the collective that it is in, or was in last
  std::string collective;  // "all-gather of group shard (#12)"
  std::string activity;    // "step 12"
  std::string failure;     // why it gave up
  double heartbeat = 0;    // seconds since 1970: when its communication thread was last alive
};

struct StatusRecord;  // the file's layout

class StatusPage {
 public:
  // With an empty folder there is no file. Throws UserError where it cannot be made.
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

// Nothing where there is no such file, or not yet a whole one.
std::optional<RankStatus> read_status(const std::filesystem::path& folder, int rank);

// "rank 3 (node1, pid 4242): in all-gather of group shard (#12), unit layers.3; step 12; last sign
// of life 2 s ago"
std::string describe(const RankStatus& status);

// Its process is on this machine and is no more.
bool is_gone(const RankStatus& status);

}  // namespace snug::dist
