// The ledger knows, for one device, every byte that is allocated at this moment: its category, the
// unit and phase that asked for it, and the peaks. The allocators below it report each allocation
// and its end, so the sum over categories is the allocator's own count: there is no residual
// category.
//
// What a new allocation is for is read from the guards in scope (guards.h). What becomes of it may
// be known only later (a forward's output turns out to be kept for backward): then it is moved by
// retag().
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
  Activations,    // kept between a unit's forward and its backward
  Workspace,      // transient: gone by the end of the operation or unit that made it
  Communication,  // buffers of collectives
  Data,           // batches
};
inline constexpr size_t kNumCategories = 7;
const char* name(Category);

enum class Phase : uint8_t { Setup, Forward, Backward, Step, Evaluate };
const char* name(Phase);

// Who writes to host memory beside a device. A copy reads it later than the program asks for that,
// so memory that is given back may still be read.
enum class HostUse : uint8_t {
  Written,  // the program: whoever gives it back has waited for the copies that read it
  Landing,  // first a copy of a copy stream, which comes after those that may still read it
};

using ByCategory = std::array<int64_t, kNumCategories>;

// Units by number, in the order of their first mention; 0 is "outside any unit".
int32_t unit_id(const std::string& name);
std::string unit_name(int32_t id);

class Ledger;

// One live allocation. Linked into its ledger's list in order of birth.
struct Allocation {
  Ledger* ledger = nullptr;
  void* data = nullptr;
  int64_t bytes = 0;
  uint64_t serial = 0;
  Category category = Category::Workspace;
  Phase phase = Phase::Setup;
  int32_t unit = 0;
  bool pinned = false;  // host memory that a device may copy from and to by itself
  HostUse host_use = HostUse::Written;
  Allocation* previous = nullptr;
  Allocation* next = nullptr;
};

// One change of what is live, as an observer is told of it, in order.
struct Change {
  uint64_t serial = 0;         // of the allocation
  int64_t bytes = 0;           // positive: allocated; negative: freed; 0: moved to another category
  Phase phase = Phase::Setup;  // who is running
  int32_t unit = 0;
  int64_t allocated = 0;  // after it
  const ByCategory* live = nullptr;
};

// What was live at one moment.
struct Snapshot {
  int64_t allocated = 0;
  ByCategory by_category{};
  std::vector<ByCategory> by_unit;  // index: unit id, 0 is "outside any unit"
  int32_t unit = 0;                 // who was running
  Phase phase = Phase::Setup;
};

// An allocation that was refused: what was asked for, by whom, and what was live then.
struct Refusal {
  int64_t bytes = 0;
  int64_t missing = 0;                      // beyond the budget; all of them where there is none
  Category category = Category::Workspace;  // of what was asked for
  Snapshot live;                            // its unit and phase are who asked
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

  // Called by allocators. admit() throws RefusedAllocation when the budget would be passed; then
  // nothing is recorded. `overhead` is what the allocator holds beyond its live allocations.
  void admit(int64_t bytes);
  Allocation* add(void* data, int64_t bytes);
  void remove(Allocation* allocation);
  // Throws RefusedAllocation for `bytes` that the device itself refused; `why` is in its terms.
  [[noreturn]] void refused_by_device(int64_t bytes, const std::string& why) const;

  // Moves one allocation, or all that were made since `serial` and are still Workspace, to a
  // category.
  void retag(Allocation* allocation, Category category);
  void retag_since(uint64_t serial, Category category);
  uint64_t serial() const;

  int64_t allocated() const;
  ByCategory by_category() const;
  Snapshot now() const;
  Snapshot at_peak() const;           // since reset_peak()
  ByCategory category_peaks() const;  // each category's own highest, not necessarily at one moment
  void reset_peak();

  void set_budget(int64_t bytes);  // 0: none
  int64_t budget() const;

  // Told of every change until it is taken away (an empty function). Must not allocate tensors.
  void observe(std::function<void(const Change&)> observer);

  // Test hook: the n-th allocation from now is refused as if memory had run out; 0 turns it off.
  void refuse_allocation(int64_t n);

  const std::string& device() const { return device_; }

 private:
  void move_between(Allocation* allocation, Category category);
  void note_peaks();
  void tell(uint64_t serial, int64_t bytes) const;
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
// Of the host memory beside a device (placement.h): beside cuda it is the same as beside cpu.
Ledger& cpu_host_ledger();
Ledger& meta_host_ledger();
Ledger& host_ledger_of(c10::DeviceType device);

// The allocation behind a tensor's storage, or null when it did not come from our allocators
// (views of mapped files, other devices).
Allocation* find_allocation(const at::Tensor& tensor);

// The unit whose the tensor's memory is; 0 where no ledger knows it.
int32_t unit_of(const at::Tensor& tensor);

// Moves the tensor's storage to `category`, when a ledger knows it.
void retag(const at::Tensor& tensor, Category category);

// Puts our allocators under libtorch's cpu, meta and, in a build with CUDA, cuda devices. Call
// once, before the first tensor.
void install_allocators();

// Bytes that an allocator holds from the system or device: live ones and those cached for reuse.
int64_t cpu_reserved();
int64_t cuda_reserved();
int64_t cuda_peak_reserved();
// How much of a GPU libtorch's allocator may hold from now on: what it takes beyond, for blocks
// that do not fit into what it holds, is refused like an allocation beyond the budget.
void limit_cuda_reserved(int64_t bytes);
int64_t reserved_on(c10::DeviceType device);
// The highest so far that is known of the device.
int64_t peak_reserved_on(c10::DeviceType device);

}  // namespace snug::memory
