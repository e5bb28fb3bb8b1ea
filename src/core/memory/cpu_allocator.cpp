// Host memory for tensors: 64-byte aligned, counted by the ledger; freed large blocks are kept for
// reuse.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "core/memory/allocators.h"
#include "core/memory/block_cache.h"
#include "core/memory/disk_file.h"
#include "core/memory/guards.h"

namespace snug::memory {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kLargeBytes = size_t{256} << 10;  // below, malloc reuses memory as well

BlockCache& blocks() {
  static auto* cache = new BlockCache(/*pinned=*/false);
  return *cache;
}

// One pool per use: a block that a copy may still read must not go to code that writes it at once.
BlockCache& pinned_blocks(HostUse use) {
  static auto* written = new BlockCache(/*pinned=*/true);
  static auto* landing = new BlockCache(/*pinned=*/true);
  return use == HostUse::Landing ? *landing : *written;
}

// Null if the system has no memory.
void* take(size_t bytes) {
  if (current_tag.pinned) return pinned_blocks(current_tag.host_use).take(bytes);
  if (bytes >= kLargeBytes) return blocks().take(bytes);
  void* data = nullptr;
  return ::posix_memalign(&data, kAlignment, bytes) == 0 ? data : nullptr;
}

void give_back(const Allocation& allocation) {
  if (allocation.pinned)
    pinned_blocks(allocation.host_use).give_back(allocation.data);
  else if (static_cast<size_t>(allocation.bytes) >= kLargeBytes)
    blocks().give_back(allocation.data);
  else
    std::free(allocation.data);
}

// Finds the Allocation of an address.
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
      ledger.refused_by_device(static_cast<int64_t>(bytes), "were refused by the system");
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
  const Allocation allocation = *record;
  record->ledger->remove(record);
  give_back(allocation);
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

void empty_cpu_cache() { blocks().release(); }

void install_cpu_allocator() {
  static auto* allocator = new CpuAllocator;
  c10::SetAllocator(c10::kCPU, allocator, 255);
}

// Once: what a simulated GPU puts on top, which leaves its own work out of the ledgers, stays
// there.
void install_allocators() {
  static const bool are_installed = [] {
    install_cpu_allocator();
    install_meta_allocator();
    install_cuda_allocator();
    return true;
  }();
  static_cast<void>(are_installed);
}

}  // namespace snug::memory
