// SPDX-License-Identifier: Apache-2.0
#include "core/simulated/memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <string_view>
#include <vector>

#include "core/simulated/device.h"

namespace snug::simulated {
namespace {

constexpr int64_t kAddressBytes = int64_t{1} << 42;
constexpr uintptr_t kPage = 4096;

struct Memory {
  std::mutex mutex;
  char* begin = nullptr;
  int64_t reserved = 0, taken = 0;
  std::map<char*, int64_t> mapped;
  std::map<const char*, int64_t> pinned;
  bool open = false;
};

// Pinned memory, from the beginning of a page, that a copy needs.
struct Held {
  char* begin;
  size_t bytes;
  bool writes;
  Work by;

  bool touches(const char* start, int64_t count) const {
    return begin < start + count && start < begin + bytes;
  }
  void protect() const { mprotect(begin, bytes, writes ? PROT_NONE : PROT_READ); }
  void open() const { mprotect(begin, bytes, PROT_READ | PROT_WRITE); }
};

struct HeldMemory {
  std::mutex mutex;
  std::vector<Held> all;
};

HeldMemory& held() {
  static auto* memory = new HeldMemory;
  return *memory;
}

// Those that are only read come first, since pages may be held twice.
void protect_held(const char* start, int64_t bytes) {
  for (const bool writes : {false, true})
    for (const Held& one : held().all)
      if (one.writes == writes && one.touches(start, bytes)) one.protect();
}

// How many were released. What is held twice stays so.
template <class Is>
size_t release_where(const Is& is) {
  const std::lock_guard lock(held().mutex);
  const auto staying = std::ranges::stable_partition(held().all, std::not_fn(is));
  const std::vector<Held> released(staying.begin(), staying.end());
  held().all.erase(staying.begin(), staying.end());
  for (const Held& one : released) one.open();
  for (const Held& one : released) protect_held(one.begin, static_cast<int64_t>(one.bytes));
  return released.size();
}

Memory& memory() {
  static auto* all = new Memory;
  return *all;
}

struct sigaction others_action;

void say(std::string_view text) {
  const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  static_cast<void>(written);
}

// What queued that copy; null for memory that none needs.
const char* copy_that_needs(const void* address) {
  const std::unique_lock lock(held().mutex, std::try_to_lock);
  if (!lock.owns_lock()) return nullptr;
  for (const Held& one : held().all)
    if (one.touches(static_cast<const char*>(address), 1)) return one.by.of;
  return nullptr;
}

void say_where(int signal, siginfo_t* info, void* context) {
  if (is_device_memory(info->si_addr)) {
    say("simulated GPU: the host touches the device's memory\n");
  } else if (const char* of = copy_that_needs(info->si_addr)) {
    say("simulated GPU: the host touches pinned memory of a copy");
    say(of);
    say(" that it has not waited for\n");
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
  report_bytes(memory().taken += bytes);
  return true;
}

void give_memory(int64_t bytes) {
  const std::lock_guard lock(memory().mutex);
  report_bytes(memory().taken -= bytes);
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
  const auto* begin = static_cast<const char*>(start);
  int64_t bytes = 0;
  {
    const std::lock_guard lock(memory().mutex);
    const auto found = memory().pinned.find(begin);
    if (found == memory().pinned.end()) return false;
    bytes = found->second;
    memory().pinned.erase(found);
  }
  if (release_where([&](const Held& one) { return one.touches(begin, bytes); }) == 0) return true;
  say("simulated GPU: memory is unpinned while a copy needs it that the host has not waited for\n");
  std::abort();
}

void hold_pinned(const void* start, int64_t bytes, bool writes, const Work& work) {
  if (work.epoch == 0) return;
  const auto at = reinterpret_cast<uintptr_t>(start), begin = at / kPage * kPage;
  const std::lock_guard lock(held().mutex);
  held().all.push_back(
      {reinterpret_cast<char*>(begin), at - begin + static_cast<uintptr_t>(bytes), writes, work});
  protect_held(static_cast<const char*>(start), bytes);
}

void release_pinned(const Epochs& known) {
  release_where([&](const Held& one) {
    return one.by.stream < known.size() && one.by.epoch <= known[one.by.stream];
  });
}

void release_all_pinned() {
  release_where([](const Held&) { return true; });
}

OpenPinned::OpenPinned(const void* start, int64_t bytes)
    : start_(static_cast<const char*>(start)), bytes_(bytes) {
  held().mutex.lock();
  for (const Held& one : held().all)
    if (one.touches(start_, bytes_)) one.open();
}

OpenPinned::~OpenPinned() {
  protect_held(start_, bytes_);
  held().mutex.unlock();
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
