// The ledger records, for one device, every live allocation with its category and the unit and
// phase that asked for it, and the peaks. Our allocators report each allocation and release, so the
// sum over categories equals the allocator's own count: there is no residual category.
//
// A new allocation is tagged by the guards in scope (guards.h). If its use is known only later (a
// forward's output is kept for backward), retag() moves it to another category.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/DeviceType.h>

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace at {
class Tensor;
}

namespace snug::memory {

enum class Category : uint8_t {
  Parameters,
  Gradients,
  Optimizer,
  Activations,    // kept from a unit's forward to its backward
  Workspace,      // temporary: freed by the end of the operation or unit that made it
  Communication,  // buffers of collectives
  Data,           // batches
};
inline constexpr size_t kNumCategories = 7;
const char* name(Category);

enum class Phase : uint8_t { Setup, Forward, Backward, Step, Evaluate };
const char* name(Phase);

// What writes first to pinned host memory. Copies run asynchronously, so freed memory may still be
// read by one.
enum class HostUse : uint8_t {
  Written,  // the program; freed only after the copies that read it are complete
  Landing,  // a copy on the copy stream, which runs after the copies that may still read it
};

using ByCategory = std::array<int64_t, kNumCategories>;

// Ids of units, numbered in order of first use; 0 is "outside any unit".
int32_t unit_id(const std::string& name);
std::string unit_name(int32_t id);

class Ledger;

// One live allocation. Linked into its ledger's list in order of creation.
struct Allocation {
  Ledger* ledger = nullptr;
  void* data = nullptr;
  int64_t bytes = 0;
  uint64_t serial = 0;
  Category category = Category::Workspace;
  Phase phase = Phase::Setup;
  int32_t unit = 0;
  bool pinned = false;    // pinned host memory
  bool recorded = false;  // of work that was recorded: Ledger::begin_recording()
  HostUse host_use = HostUse::Written;
  Allocation* previous = nullptr;
  Allocation* next = nullptr;
};

// One change of live memory, as reported to an observer, in order.
struct Change {
  uint64_t serial = 0;         // of the allocation
  int64_t bytes = 0;           // positive: allocated; negative: freed; 0: moved to another category
  Phase phase = Phase::Setup;  // that is running
  int32_t unit = 0;
  int64_t allocated = 0;  // live bytes after the change
  const ByCategory* live = nullptr;
  bool recorded = false;  // of recorded work
  bool empties = false;   // the allocator gives cached memory back to the device
};

// The live bytes at one moment.
struct Snapshot {
  int64_t allocated = 0;
  ByCategory by_category{};
  std::vector<ByCategory> by_unit;  // index: unit id, 0 is "outside any unit"
  int32_t unit = 0;                 // the unit that was running
  Phase phase = Phase::Setup;
};

// A refused allocation: its size, its tag, and the live bytes at that moment.
struct Refusal {
  int64_t bytes = 0;
  int64_t missing = 0;  // bytes beyond the budget; without a budget all bytes asked for
  Category category = Category::Workspace;  // of the refused allocation
  Snapshot live;                            // with the unit and phase that asked

  // The bytes that could be had: the budget, or what was allocated when the system refused.
  int64_t available() const { return live.allocated + bytes - missing; }
};

class RefusedAllocation : public OutOfMemory {
 public:
  RefusedAllocation(const std::string& what, Refusal refusal)
      : OutOfMemory(what), refusal_(std::move(refusal)) {}
  const Refusal& refusal() const { return refusal_; }

 private:
  Refusal refusal_;
};

class Ledger {
 public:
  explicit Ledger(std::string device) : device_(std::move(device)) {}
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // Called by allocators. admit() throws RefusedAllocation if the budget would be exceeded, and
  // then records nothing. `overhead`: bytes that the allocator holds beyond its live allocations.
  void admit(int64_t bytes);
  Allocation* add(void* data, int64_t bytes);
  void remove(Allocation* allocation);
  // Throws RefusedAllocation for `bytes` that the device itself refused; `why` completes the
  // message.
  [[noreturn]] void refused_by_device(int64_t bytes, const std::string& why) const;

  // Moves one allocation to a category, or all Workspace allocations made since `serial`.
  void retag(Allocation* allocation, Category category);
  void retag_since(uint64_t serial, Category category);
  uint64_t serial() const;

  int64_t allocated() const;
  ByCategory by_category() const;
  Snapshot now() const;
  Snapshot at_peak() const;  // since reset_peak()
  ByCategory category_peaks()
      const;  // each category's own peak, not necessarily at the same moment
  void reset_peak();

  // Work that is recorded once and then done many times writes to the same memory each time, also
  // to what it had freed. So what is allocated between the two calls stays taken, as activations of
  // no unit: their peak over all recordings, less what is live of them. Freed as a whole.
  void begin_recording();
  void end_recording();
  void free_recorded();
  // The allocator gives memory back that it only caches: for observers.
  void note_cache_emptied();

  void set_budget(int64_t bytes);  // 0: none
  int64_t budget() const;

  // Calls `observer` for every change; an empty function removes it. It must not allocate tensors.
  void observe(std::function<void(const Change&)> observer);

  // Test hook: the n-th allocation from now is refused as if memory had run out; 0 turns this off.
  void refuse_allocation(int64_t n);

  const std::string& device() const { return device_; }

 private:
  void move_between(Allocation* allocation, Category category);
  void note_peaks();
  void tell(uint64_t serial, int64_t bytes, bool recorded = false) const;
  void hold_recorded(int64_t bytes);
  Snapshot snapshot_locked() const;
  [[noreturn]] void refuse(int64_t bytes) const;
  [[noreturn]] void throw_refusal(int64_t bytes, int64_t missing, const std::string& why) const;

  mutable std::mutex mutex_;
  std::string device_;
  Allocation* newest_ = nullptr;
  uint64_t next_serial_ = 1;
  int64_t allocated_ = 0;
  int64_t budget_ = 0;
  int64_t refuse_in_ = 0;
  int64_t recorded_live_ = 0, recorded_peak_ = 0, recorded_held_ = 0;
  std::function<void(const Change&)> observer_;
  ByCategory live_{};
  ByCategory category_peaks_{};
  std::vector<ByCategory> by_unit_{1};
  Snapshot peak_;
};

Ledger& cpu_ledger();
Ledger& meta_ledger();
Ledger& cuda_ledger();
Ledger& ledger_of(c10::DeviceType device);
// The host's ledger (placement.h), one for cpu and cuda.
Ledger& cpu_host_ledger();
Ledger& meta_host_ledger();
Ledger& host_ledger_of(c10::DeviceType device);

// The allocation of a tensor's storage; null if it is not from our allocators (mapped files, other
// devices).
Allocation* find_allocation(const at::Tensor& tensor);

// The unit that the tensor's memory is tagged with; 0 if it is in no ledger.
int32_t unit_of(const at::Tensor& tensor);

// Moves the tensor's storage to `category`, if it is in a ledger.
void retag(const at::Tensor& tensor, Category category);

// Installs our allocators for libtorch's cpu and meta devices and, in a build with CUDA, cuda. Call
// once, before the first tensor.
void install_allocators();

// Bytes that an allocator holds from the system or device, live or cached for reuse.
int64_t cpu_reserved();
int64_t cuda_reserved();
int64_t cuda_peak_reserved();
// How often libtorch's allocator had to give cached memory back to the GPU and ask it again.
int64_t cuda_alloc_retries();
// Limits the GPU memory that libtorch's allocator may reserve. A request that needs more is refused
// like one beyond the budget.
void limit_cuda_reserved(int64_t bytes);
// Gives memory back to the GPU, or the system, that an allocator only caches; on meta observers are
// told.
void empty_cache(c10::DeviceType device);
int64_t reserved_on(c10::DeviceType device);
// The highest reserved bytes of the device so far.
int64_t peak_reserved_on(c10::DeviceType device);

}  // namespace snug::memory
