// SPDX-License-Identifier: Apache-2.0
#include "core/simulated/memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <new>

namespace snug::simulated {
namespace {

constexpr int64_t kAddressBytes = int64_t{1} << 42;
constexpr int64_t kDefaultCapacity = int64_t{16} << 30;

struct Memory {
  std::mutex mutex;
  char* begin = nullptr;
  int64_t reserved = 0, taken = 0;
  std::map<char*, int64_t> mapped;
  std::map<const char*, int64_t> pinned;
  bool open = false;
};

Memory& memory() {
  static auto* all = new Memory;
  return *all;
}

struct sigaction others_action;

void say_where(int signal, siginfo_t* info, void* context) {
  if (is_device_memory(info->si_addr)) {
    constexpr char kText[] = "simulated GPU: the host touches the device's memory\n";
    const ssize_t written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
    static_cast<void>(written);
  }
  sigaction(SIGSEGV, &others_action, nullptr);  // and happens again
  if (others_action.sa_flags & SA_SIGINFO) others_action.sa_sigaction(signal, info, context);
}

void reserve_all() {
  if (memory().begin != nullptr) return;
  void* all = mmap(nullptr, static_cast<size_t>(kAddressBytes), PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) throw std::bad_alloc();
  memory().begin = static_cast<char*>(all);
  struct sigaction action = {};
  action.sa_sigaction = say_where;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &others_action);
}

void protect(int protection) {
  for (const auto& [start, bytes] : memory().mapped)
    mprotect(start, static_cast<size_t>(bytes), protection);
}

}  // namespace

int64_t capacity() {
  static const char* given = std::getenv("SNUG_SIMULATED_MEMORY");
  return given == nullptr ? kDefaultCapacity : std::atoll(given);
}

int64_t free_memory() {
  const std::lock_guard lock(memory().mutex);
  return capacity() - memory().taken;
}

void* reserve_addresses(int64_t bytes, int64_t alignment) {
  const std::lock_guard lock(memory().mutex);
  reserve_all();
  const int64_t start = (memory().reserved + alignment - 1) / alignment * alignment;
  if (start + bytes > kAddressBytes) return nullptr;
  memory().reserved = start + bytes;
  return memory().begin + start;
}

bool take_memory(int64_t bytes) {
  const std::lock_guard lock(memory().mutex);
  if (memory().taken + bytes > capacity()) return false;
  memory().taken += bytes;
  return true;
}

void give_memory(int64_t bytes) {
  const std::lock_guard lock(memory().mutex);
  memory().taken -= bytes;
}

void map_memory(void* start, int64_t bytes) {
  const std::lock_guard lock(memory().mutex);
  memory().mapped[static_cast<char*>(start)] = bytes;
  if (memory().open) mprotect(start, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE);
}

void unmap_memory(void* start, int64_t bytes) {
  const std::lock_guard lock(memory().mutex);
  memory().mapped.erase(static_cast<char*>(start));
  madvise(start, static_cast<size_t>(bytes), MADV_DONTNEED);
  mprotect(start, static_cast<size_t>(bytes), PROT_NONE);
}

bool is_device_memory(const void* address) {
  const char* begin = memory().begin;
  return begin != nullptr && address >= begin && address < begin + kAddressBytes;
}

void open_memory() {
  const std::lock_guard lock(memory().mutex);
  if (!memory().open) protect(PROT_READ | PROT_WRITE);
  memory().open = true;
}

void close_memory() {
  const std::lock_guard lock(memory().mutex);
  if (memory().open) protect(PROT_NONE);
  memory().open = false;
}

void pin(const void* start, int64_t bytes) {
  const std::lock_guard lock(memory().mutex);
  memory().pinned[static_cast<const char*>(start)] = bytes;
}

bool unpin(const void* start) {
  const std::lock_guard lock(memory().mutex);
  return memory().pinned.erase(static_cast<const char*>(start)) == 1;
}

bool is_pinned(const void* address) {
  const std::lock_guard lock(memory().mutex);
  const auto* at = static_cast<const char*>(address);
  const auto next = memory().pinned.upper_bound(at);
  if (next == memory().pinned.begin()) return false;
  const auto& [start, bytes] = *std::prev(next);
  return at < start + bytes;
}

}  // namespace snug::simulated
