// Device memory for tensors: libtorch's caching allocator, wrapped so that each allocation is a
// record of the ledger. The wrapper replaces CUDACachingAllocator::get(), since libtorch asks that
// for CUDA memory and not the table of c10::SetAllocator: docs/decisions/0004-cuda-ledger.md. A
// DataPtr's context is its Allocation, which lets the ledger find and retag a tensor; raw pointers
// (CUB, cuBLAS) are kept in a map of addresses. The ledger counts the bytes asked for, as on the
// cpu; the caching allocator rounds them up, and cuda_reserved() is what it holds of the device.
// SPDX-License-Identifier: Apache-2.0
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "core/memory/allocators.h"
#include "core/memory/cuda_settings.h"

namespace snug::memory {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;
using c10::DeviceIndex;
using c10::MempoolId_t;

// Runs libtorch's allocation and turns its out-of-memory error into ours, with the ledger's table.
template <class Allocate>
void* take(size_t bytes, Allocate allocate) {
  cuda_ledger().admit(static_cast<int64_t>(bytes));
  try {
    return allocate();
  } catch (const c10::OutOfMemoryError&) {
    size_t free = 0;
    size_t total = 0;
    cudaMemGetInfo(&free, &total);  // leaves 0 if this fails too
    cuda_ledger().refused_by_device(
        static_cast<int64_t>(bytes),
        fmt::format("do not fit on the device: {} of its {} are free, and this program holds {}",
                    format_bytes(static_cast<int64_t>(free)),
                    format_bytes(static_cast<int64_t>(total)), format_bytes(cuda_reserved())));
  }
}

class CudaAllocator final : public caching::CUDAAllocator {
 public:
  explicit CudaAllocator(caching::CUDAAllocator* inner) : inner_(inner) {}

  c10::DataPtr allocate(size_t bytes) override {
    DeviceIndex index = 0;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&index));
    const c10::Device device(c10::kCUDA, index);
    if (bytes == 0) return {nullptr, nullptr, &delete_cuda_allocation, device};
    void* data = take(bytes, [&] { return inner_->raw_alloc(bytes); });
    return {data, cuda_ledger().add(data, static_cast<int64_t>(bytes)), &delete_cuda_allocation,
            device};
  }

  void* raw_alloc(size_t bytes) override {
    return remember(take(bytes, [&] { return inner_->raw_alloc(bytes); }), bytes);
  }
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
    return remember(take(bytes, [&] { return inner_->raw_alloc_with_stream(bytes, stream); }),
                    bytes);
  }
  void raw_delete(void* data) override {
    forget(data);
    inner_->raw_delete(data);
  }
  void give_back(void* data) { inner_->raw_delete(data); }

  // libtorch ignores pointers with another deleter, so it gets one with its own.
  using CUDAAllocator::recordStream;
  void recordStream(const c10::DataPtr& pointer, c10::cuda::CUDAStream stream) override {
    if (allocation_behind(pointer) == nullptr) return;
    c10::DataPtr block(pointer.get(), pointer.get(), inner_->raw_deleter(), pointer.device());
    inner_->recordStream(block, stream);
    block.release_context();
  }

  // All other virtual functions are forwarded to libtorch's allocator, including those with a
  // default body, which would throw or do nothing. The test cuda_allocator_forwards compares the
  // list with the header.
  void copy_data(void* to, const void* from, size_t bytes) const override {
    inner_->copy_data(to, from, bytes);
  }
  bool initialized() override { return inner_->initialized(); }
  void init(int device_count) override { inner_->init(device_count); }
  void emptyCache(MempoolId_t pool) override { inner_->emptyCache(pool); }
  caching::DeviceStats getDeviceStats(DeviceIndex device) override {
    return inner_->getDeviceStats(device);
  }
  void resetAccumulatedStats(DeviceIndex device) override { inner_->resetAccumulatedStats(device); }
  void resetPeakStats(DeviceIndex device) override { inner_->resetPeakStats(device); }
  double getMemoryFraction(DeviceIndex device) override {
    return inner_->getMemoryFraction(device);
  }
  void setMemoryFraction(double fraction, DeviceIndex device) override {
    inner_->setMemoryFraction(fraction, device);
  }
  std::vector<caching::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override {
    return inner_->getExpandableSegmentSizes(device);
  }
  void enable(bool value) override { inner_->enable(value); }
  bool isEnabled() const override { return inner_->isEnabled(); }
  void cacheInfo(DeviceIndex device, size_t* largest) override {
    inner_->cacheInfo(device, largest);
  }
  void* getBaseAllocation(void* data, size_t* size) override {
    return inner_->getBaseAllocation(data, size);
  }
  caching::SnapshotInfo snapshot(MempoolId_t pool, bool include_traces) override {
    return inner_->snapshot(pool, include_traces);
  }
  void beginAllocateToPool(DeviceIndex device, MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override {
    inner_->beginAllocateToPool(device, pool, std::move(filter));
  }
  void endAllocateToPool(DeviceIndex device, MempoolId_t pool) override {
    inner_->endAllocateToPool(device, pool);
  }
  void releasePool(DeviceIndex device, MempoolId_t pool) override {
    inner_->releasePool(device, pool);
  }
  caching::ShareableHandle shareIpcHandle(void* data) override {
    return inner_->shareIpcHandle(data);
  }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return inner_->getIpcDevPtr(std::move(handle));
  }
  void recordHistory(bool enabled, caching::CreateContextFn recorder, size_t max_entries,
                     caching::RecordContext when, bool clear,
                     const std::vector<std::string>& skip) override {
    inner_->recordHistory(enabled, recorder, max_entries, when, clear, skip);
  }
  void attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) override {
    inner_->attachOutOfMemoryObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(caching::AllocatorTraceTracker tracker) override {
    inner_->attachAllocatorTraceTracker(std::move(tracker));
  }
  void enablePeerAccess(DeviceIndex device, DeviceIndex peer) override {
    inner_->enablePeerAccess(device, peer);
  }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                          cudaStream_t stream, bool peer) override {
    return inner_->memcpyAsync(to, to_device, from, from_device, bytes, stream, peer);
  }
  std::shared_ptr<caching::AllocatorState> getCheckpointState(DeviceIndex device,
                                                              MempoolId_t pool) override {
    return inner_->getCheckpointState(device, pool);
  }
  caching::CheckpointDelta setCheckpointPoolState(
      DeviceIndex device, std::shared_ptr<caching::AllocatorState> state) override {
    return inner_->setCheckpointPoolState(device, std::move(state));
  }
  std::string name() override { return inner_->name(); }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    return inner_->getMemoryInfo(device);
  }
  int getPoolUseCount(DeviceIndex device, MempoolId_t pool) override {
    return inner_->getPoolUseCount(device, pool);
  }
  void createOrIncrefPool(DeviceIndex device, MempoolId_t pool,
                          std::shared_ptr<CUDAAllocator> allocator) override {
    inner_->createOrIncrefPool(device, pool, std::move(allocator));
  }
  void setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool use) override {
    inner_->setUseOnOOM(device, pool, use);
  }
  void setNoSplit(DeviceIndex device, MempoolId_t pool) override {
    inner_->setNoSplit(device, pool);
  }
  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override {
    return inner_->checkPoolLiveAllocations(device, pool, expected);
  }
  bool isHistoryEnabled() override { return inner_->isHistoryEnabled(); }
  void recordAnnotation(
      const std::vector<std::pair<std::string, std::string>>& annotation) override {
    inner_->recordAnnotation(annotation);
  }
  void pushCompileContext(std::string& context) override { inner_->pushCompileContext(context); }
  void popCompileContext() override { inner_->popCompileContext(); }
  void setUserMetadata(const std::string& metadata) override { inner_->setUserMetadata(metadata); }
  std::string getUserMetadata() override { return inner_->getUserMetadata(); }

 private:
  void* remember(void* data, size_t bytes) {
    if (data == nullptr) return data;
    const std::lock_guard lock(mutex_);
    raw_[data] = cuda_ledger().add(data, static_cast<int64_t>(bytes));
    return data;
  }
  void forget(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = raw_.find(data);
    if (found == raw_.end()) return;
    cuda_ledger().remove(found->second);
    raw_.erase(found);
  }

  caching::CUDAAllocator* inner_;
  std::mutex mutex_;
  std::unordered_map<void*, Allocation*> raw_;
};

CudaAllocator& installed() {
  static auto* allocator = new CudaAllocator(caching::get());
  return *allocator;
}

caching::DeviceStats statistics() {
  // No device has been used yet, or none exists.
  if (!installed().initialized()) return {};
  DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return installed().getDeviceStats(device);
}

c10::CachingAllocator::Stat reserved_bytes() {
  const auto total = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return statistics().reserved_bytes[total];
}

}  // namespace

void delete_cuda_allocation(void* context) {
  auto* record = static_cast<Allocation*>(context);
  if (record == nullptr) return;
  void* data = record->data;
  record->ledger->remove(record);
  installed().give_back(data);
}

int64_t cuda_reserved() { return reserved_bytes().current; }
int64_t cuda_peak_reserved() { return reserved_bytes().peak; }
int64_t cuda_alloc_retries() { return statistics().num_alloc_retries; }

bool pin_memory(void* data, size_t bytes) {
  const bool pinned = cudaHostRegister(data, bytes, cudaHostRegisterDefault) == cudaSuccess;
  if (!pinned) cudaGetLastError();  // clears the error, or the next call would report it
  return pinned;
}

void unpin_memory(void* data) {
  C10_CUDA_CHECK(cudaDeviceSynchronize());
  if (cudaHostUnregister(data) != cudaSuccess) cudaGetLastError();  // it was never pinned
}

// libtorch returns unused segments to the device before it refuses.
void limit_cuda_reserved(int64_t bytes) {
  DeviceIndex index = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&index));
  size_t free = 0;
  size_t total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const double share = static_cast<double>(bytes) / static_cast<double>(total);
  installed().setMemoryFraction(std::clamp(share, 0.0, 1.0), index);
}

void empty_cuda_cache() { installed().emptyCache({0, 0}); }

void install_cuda_allocator() {
  const std::string given = allocator_settings_in_environment();
  const std::string settings = allocator_settings(given);
  if (settings != given) c10::CachingAllocator::setAllocatorSettings(settings);
  SNUG_CHECK(caching::get() != nullptr, "libtorch has no CUDA allocator");
  caching::allocator.store(&installed());
  c10::SetAllocator(c10::kCUDA, &installed(), 255);
}

}  // namespace snug::memory
