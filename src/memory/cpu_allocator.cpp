// Host memory for tensors: 64-byte aligned, counted by the ledger, with freed large blocks kept for
// the next step. A step frees and asks for the same sizes again and again; giving each back to the
// system would cost a page fault per 4 KiB, which on two cores is a tenth of the step.
// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "base/log.h"
#include "memory/allocators.h"
#include "memory/disk_file.h"
#include "memory/guards.h"

namespace snug::memory {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kLargeBytes = size_t{256} << 10;  // below, malloc's own reuse is as good
constexpr size_t kHugeBytes = size_t{4} << 20;     // from here on 2 MiB pages pay

// Large blocks in use or cached, straight from mmap. A block may serve a request up to an eighth
// smaller, or half its size when memory is short. What is mapped may pass the highest need so far
// by an eighth at most: the resident set is what people see.
class BlockCache {
 public:
  explicit BlockCache(bool pinned) : pinned_(pinned) {}

  // Null where the system refuses.
  void* take(size_t bytes) {
    const size_t rounded = round_up(bytes);
    {
      const std::lock_guard lock(mutex_);
      const auto found = free_.lower_bound(rounded);
      // Where the block would have to take the place of others, one of up to twice the size is
      // better than fresh pages, which the system fills with zeros first.
      const size_t spare = mapped_ + rounded > limit(rounded) ? rounded : rounded / 8;
      if (found != free_.end() && found->first <= rounded + spare) {
        void* data = found->second;
        in_use_[data] = found->first;
        cached_ -= found->first;
        free_.erase(found);
        note_peak();
        return data;
      }
    }
    return map_new(rounded);
  }

  void give_back(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = in_use_.find(data);
    const size_t bytes = found->second;
    in_use_.erase(found);
    free_.emplace(bytes, data);
    cached_ += bytes;
  }

  void release() {
    const std::lock_guard lock(mutex_);
    while (!free_.empty()) unmap(free_.begin());
  }

  size_t cached() const {
    const std::lock_guard lock(mutex_);
    return cached_;
  }

 private:
  static constexpr size_t kFloorBytes = size_t{48} << 20;

  static size_t round_up(size_t bytes) {
    const size_t unit = bytes >= kHugeBytes ? size_t{64} << 10 : size_t{4} << 10;
    return (bytes + unit - 1) / unit * unit;
  }

  void note_peak() { peak_ = std::max(peak_, mapped_ - cached_); }

  // How much may be mapped when `bytes` more are in use.
  size_t limit(size_t bytes) const {
    const size_t need = std::max(peak_, mapped_ - cached_ + bytes);
    return need + need / 8 + kFloorBytes;
  }

  // Gives cached blocks back until `bytes` more may be mapped: the smallest that is enough, or the
  // largest.
  void make_room(size_t bytes) {
    const std::lock_guard lock(mutex_);
    while (!free_.empty() && mapped_ + bytes > limit(bytes)) {
      const auto enough = free_.lower_bound(mapped_ + bytes - limit(bytes));
      unmap(enough != free_.end() ? enough : std::prev(free_.end()));
    }
  }

  void* map_new(size_t bytes) {
    make_room(bytes);
    void* data = try_map(bytes);
    if (data == MAP_FAILED) {
      release();
      data = try_map(bytes);
    }
    if (data == MAP_FAILED) return nullptr;
    if (bytes >= kHugeBytes) ::madvise(data, bytes, MADV_HUGEPAGE);
    if (pinned_ && !pin_memory(data, bytes) && !warned_.exchange(true))
      warn(
          "the driver refuses to pin host memory: copies between host and GPU hold up the program; "
          "raise the limit on locked memory (ulimit -l)");
    const std::lock_guard lock(mutex_);
    in_use_[data] = bytes;
    mapped_ += bytes;
    note_peak();
    return data;
  }

  static void* try_map(size_t bytes) {
    return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }

  void unmap(std::multimap<size_t, void*>::iterator block) {
    if (pinned_) unpin_memory(block->second);
    ::munmap(block->second, block->first);
    cached_ -= block->first;
    mapped_ -= block->first;
    free_.erase(block);
  }

  const bool pinned_;
  std::atomic<bool> warned_ = false;
  mutable std::mutex mutex_;
  std::multimap<size_t, void*> free_;
  std::map<void*, size_t> in_use_;
  size_t cached_ = 0;
  size_t mapped_ = 0;
  size_t peak_ = 0;  // most that was in use at one time
};

BlockCache& blocks() {
  static auto* cache = new BlockCache(/*pinned=*/false);
  return *cache;
}

BlockCache& pinned_blocks() {
  static auto* cache = new BlockCache(/*pinned=*/true);
  return *cache;
}

// Null where the system has none.
void* take(size_t bytes) {
  if (current_tag.pinned) return pinned_blocks().take(bytes);
  if (bytes >= kLargeBytes) return blocks().take(bytes);
  void* data = nullptr;
  return ::posix_memalign(&data, kAlignment, bytes) == 0 ? data : nullptr;
}

void give_back(void* data, int64_t bytes, bool pinned) {
  if (pinned)
    pinned_blocks().give_back(data);
  else if (static_cast<size_t>(bytes) >= kLargeBytes)
    blocks().give_back(data);
  else
    std::free(data);
}

// Which Allocation is behind an address.
class LiveAllocations {
 public:
  void add(Allocation* allocation) {
    const std::lock_guard lock(mutex_);
    by_address_[allocation->data] = allocation;
  }
  Allocation* find(const void* data) const {
    const std::lock_guard lock(mutex_);
    const auto found = by_address_.find(data);
    return found == by_address_.end() ? nullptr : found->second;
  }
  Allocation* take(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = by_address_.find(data);
    Allocation* allocation = found->second;
    by_address_.erase(found);
    return allocation;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<const void*, Allocation*> by_address_;
};

LiveAllocations& live() {
  static auto* allocations = new LiveAllocations;
  return *allocations;
}

class CpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(c10::kCPU);
    if (bytes == 0) return {nullptr, nullptr, &delete_cpu_allocation, device};
    if (current_tag.disk != nullptr && current_tag.disk->has_file())
      return current_tag.disk->allocate(static_cast<int64_t>(bytes));
    Ledger& ledger = current_tag.on_host ? cpu_host_ledger() : cpu_ledger();
    ledger.admit(static_cast<int64_t>(bytes));
    void* data = take(bytes);
    if (data == nullptr)
      ledger.refused_by_device(static_cast<int64_t>(bytes), "are refused by the system");
    Allocation* record = ledger.add(data, static_cast<int64_t>(bytes));
    record->pinned = current_tag.pinned;
    live().add(record);
    return {data, data, &delete_cpu_allocation, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &delete_cpu_allocation; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

}  // namespace

void delete_cpu_allocation(void* data) {
  if (data == nullptr) return;
  Allocation* record = live().take(data);
  const int64_t bytes = record->bytes;
  const bool pinned = record->pinned;
  record->ledger->remove(record);
  give_back(data, bytes, pinned);
}

Allocation* cpu_allocation_at(const void* data) { return live().find(data); }

Ledger& cpu_ledger() {
  static Ledger* ledger = new Ledger("cpu");  // never destroyed: tensors may outlive statics
  return *ledger;
}

Ledger& cpu_host_ledger() {
  static Ledger* ledger = new Ledger("host");
  return *ledger;
}

int64_t cpu_reserved() {
  return cpu_ledger().allocated() + static_cast<int64_t>(blocks().cached());
}

void release_cached_memory() { blocks().release(); }

void install_cpu_allocator() {
  static auto* allocator = new CpuAllocator;
  c10::SetAllocator(c10::kCPU, allocator, 255);
}

void install_allocators() {
  install_cpu_allocator();
  install_meta_allocator();
  install_cuda_allocator();
}

}  // namespace snug::memory
