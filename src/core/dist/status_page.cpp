// SPDX-License-Identifier: Apache-2.0
#include "core/dist/status_page.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/program.h"

namespace snug::dist {

struct StatusRecord {
  uint64_t magic;
  std::atomic<uint32_t> version;  // odd while it is written
  int32_t rank;
  int32_t size;
  RankState state;
  int64_t pid;
  int64_t started;
  int64_t finished;
  double heartbeat;
  char host[128];
  char processes[64];
  char unit[256];
  char collective[256];
  char activity[256];
  char failure[2048];
};

namespace {

constexpr uint64_t kMagic = 0x31306775'6e730a01;
constexpr size_t kPageBytes = 4096;
static_assert(sizeof(StatusRecord) <= kPageBytes);

std::string process_namespace() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
}

template <size_t N>
void set_text(char (&to)[N], const std::string& text) {
  const size_t length = std::min(text.size(), N - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

template <size_t N>
std::string text_of(const char (&from)[N]) {
  return {from, strnlen(from, N)};
}

void* map_file(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  // Removes an earlier run's page instead of overwriting it, since another process may have it
  // open.
  std::filesystem::remove(path, error);
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  void* page = MAP_FAILED;
  if (file >= 0 && posix_fallocate(file, 0, kPageBytes) == 0) {
    page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  const int reason = errno;
  if (file >= 0) close(file);
  if (page == MAP_FAILED) {
    throw UserError("{}: cannot make this rank's status page: {}", path.string(),
                    std::strerror(reason));
  }
  return page;
}

RankStatus status_in(const StatusRecord& record) {
  return {.rank = record.rank,
          .size = record.size,
          .pid = record.pid,
          .host = text_of(record.host),
          .processes = text_of(record.processes),
          .state = record.state,
          .started = record.started,
          .finished = record.finished,
          .unit = text_of(record.unit),
          .collective = text_of(record.collective),
          .activity = text_of(record.activity),
          .failure = text_of(record.failure),
          .heartbeat = record.heartbeat};
}

}  // namespace

const char* name(RankState state) {
  switch (state) {
    case RankState::Joining:
      return "joining";
    case RankState::Running:
      return "running";
    case RankState::Ended:
      return "ended";
    case RankState::Failed:
      return "failed";
  }
  return "?";
}

StatusPage::StatusPage(const std::filesystem::path& folder, int rank, int size) {
  void* page = folder.empty() ? mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                              : map_file(status_file(folder, rank));
  SNUG_CHECK(page != MAP_FAILED, "no memory for a status page");
  record_ = new (page) StatusRecord();
  write([&](StatusRecord& record) {
    record.rank = rank;
    record.size = size;
    record.pid = getpid();
    set_text(record.host, host_name());
    set_text(record.processes, process_namespace());
    record.magic = kMagic;
  });
}

StatusPage::~StatusPage() { munmap(record_, kPageBytes); }

void StatusPage::set_state(RankState state) {
  write([&](StatusRecord& record) { record.state = state; });
}

void StatusPage::set_failure(const std::string& why) {
  write([&](StatusRecord& record) {
    record.state = RankState::Failed;
    set_text(record.failure, why);
  });
}

void StatusPage::set_activity(const std::string& activity) {
  write([&](StatusRecord& record) { set_text(record.activity, activity); });
}

void StatusPage::collective_started(const std::string& unit, const std::string& collective) {
  write([&](StatusRecord& record) {
    ++record.started;
    set_text(record.unit, unit);
    set_text(record.collective, collective);
  });
}

void StatusPage::collective_finished() {
  write([](StatusRecord& record) { ++record.finished; });
}

void StatusPage::beat() {
  write([](StatusRecord&) {});
}

template <class Change>
void StatusPage::write(const Change& change) {
  const std::lock_guard lock(mutex_);
  record_->version.fetch_add(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  change(*record_);
  record_->heartbeat = unix_seconds();
  record_->version.fetch_add(1, std::memory_order_release);
}

std::filesystem::path status_file(const std::filesystem::path& folder, int rank) {
  return folder / fmt::format("rank-{}.status", rank);
}

std::optional<RankStatus> read_status(const std::filesystem::path& folder, int rank) {
  const int file = open(status_file(folder, rank).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  void* page = mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED, file, 0);
  const off_t length = lseek(file, 0, SEEK_END);
  close(file);
  if (page == MAP_FAILED) return std::nullopt;
  std::optional<RankStatus> status;
  if (length >= static_cast<off_t>(kPageBytes)) {
    const auto& record = *static_cast<const StatusRecord*>(page);
    alignas(StatusRecord) std::array<char, sizeof(StatusRecord)> bytes;
    const auto& copy = *reinterpret_cast<const StatusRecord*>(bytes.data());
    // A process that died while writing leaves an odd version forever; then the last attempt
    // counts.
    for (int attempt = 0; attempt < 100; ++attempt) {
      const uint32_t before = record.version.load(std::memory_order_acquire);
      std::memcpy(bytes.data(), page, bytes.size());
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (before % 2 == 0 && before == record.version.load(std::memory_order_relaxed)) break;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    if (copy.magic == kMagic) status = status_in(copy);
  }
  munmap(page, kPageBytes);
  return status;
}

std::string describe(const RankStatus& status) {
  std::string text = fmt::format("rank {} ({}, pid {}): ", status.rank, status.host, status.pid);
  if (status.state == RankState::Failed) {
    text += "failed";
    if (!status.failure.empty()) text += fmt::format(": {}", status.failure);
  } else if (status.state == RankState::Ended) {
    text += "ended";
  } else if (status.state == RankState::Joining) {
    text += "joining the others";
  } else if (status.started > status.finished) {
    text += fmt::format("in {}", status.collective);
    if (!status.unit.empty()) text += fmt::format(", unit {}", status.unit);
  } else {
    text += "computing";
    if (!status.collective.empty()) text += fmt::format(", last {}", status.collective);
  }
  if (!status.activity.empty()) text += fmt::format("; {}", status.activity);
  const double silent = std::max(0.0, unix_seconds() - status.heartbeat);
  return text + fmt::format("; last sign of life {:.0f} s ago", silent);
}

bool is_gone(const RankStatus& status) {
  return status.host == host_name() && status.processes == process_namespace() &&
         kill(static_cast<pid_t>(status.pid), 0) != 0 && errno == ESRCH;
}

}  // namespace snug::dist
