// What libtorch asks of its CUDA half, which is not here, and what the caching allocator tells:
// each block that it hands out is memory with nothing in it from where its stream has come, until
// it is free again.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <cstring>

#include "core/kernels/simulated/simulation.h"
#include "core/simulated/operators.h"
#include "core/simulated/streams.h"

// libc10_cuda.so defines this; no header declares it.
namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*has)(DeviceIndex));
}

namespace snug::simulated {
namespace {

namespace watched = kernels::simulated;
namespace caching = c10::cuda::CUDACachingAllocator;

thread_local bool is_uncounted = false;

// A block is no numbers at first, in any type; large ones are left as they are, which is quicker.
constexpr int kNothing = 0xff;
constexpr int64_t kMostSpoilt = int64_t{16} << 20;

// What operators take on the CPU to stand in for a GPU's is no memory of the program's.
class CpuAllocator final : public c10::Allocator {
 public:
  explicit CpuAllocator(c10::Allocator* programs) : programs_(programs) {}
  c10::DataPtr allocate(size_t bytes) override { return chosen()->allocate(bytes); }
  // oneDNN asks when it frees, on the thread that took the memory.
  c10::DeleterFnPtr raw_deleter() const override { return chosen()->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    programs_->copy_data(to, from, bytes);
  }

 private:
  c10::Allocator* chosen() const {
    return is_uncounted || on_device() ? c10::GetDefaultCPUAllocator() : programs_;
  }
  c10::Allocator* programs_;
};

void trace(const caching::TraceEntry& entry) {
  using Entry = caching::TraceEntry;
  auto* start = reinterpret_cast<void*>(entry.addr_);
  const size_t entry_bytes = entry.size_;
  const auto bytes = static_cast<int64_t>(entry_bytes);
  Stream* stream = stream_of(entry.stream_);
  const bool recorded = is_recording(stream);
  if (entry.action_ == Entry::ALLOC) {
    if (recorded) note_recorded_block(stream, start);
    enqueue(stream, "allocation", [=] {
      // What recorded work left there, this or other, was for what came before.
      if (recorded) watched::remove_blocks(start, bytes);
      watched::add_block(start, bytes);
      if (bytes <= kMostSpoilt) std::memset(start, kNothing, entry_bytes);
    });
  } else if (entry.action_ == Entry::FREE_COMPLETED) {
    const auto free = [=] { watched::remove_block(start); };
    if (recorded && !forget_recorded_block(stream, start))
      enqueue_beside_recording(stream, "free", free);
    else
      enqueue(stream, "free", free);
  }
}

// Its name is what libtorch looks for.
struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs /*arguments*/) {}

  void init() const override {
    c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex /*device*/) { return true; });
    caching::init(c10::cuda::device_count());
    caching::get()->attachAllocatorTraceTracker(trace);
    c10::SetAllocator(c10::kCPU, new CpuAllocator(c10::GetAllocator(c10::kCPU)), 255);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex /*device*/) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return c10::cuda::device_count() > 0; }
  bool hasCUDA() const override { return c10::cuda::device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return c10::cuda::device_count(); }
  c10::DeviceIndex current_device() const override { return c10::cuda::current_device(); }
  c10::DeviceIndex getCurrentDevice() const override { return c10::cuda::current_device(); }
  int getNumGPUs() const override { return c10::cuda::device_count(); }
  void deviceSynchronize(c10::DeviceIndex /*device*/) const override { wait_for_all(); }
};

}  // namespace

Uncounted::Uncounted() : saved_(is_uncounted) { is_uncounted = true; }
Uncounted::~Uncounted() { is_uncounted = saved_; }

}  // namespace snug::simulated

namespace at {
using snug::simulated::CUDAHooks;
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at
