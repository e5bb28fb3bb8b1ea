// SPDX-License-Identifier: Apache-2.0
#include "core/ops/device/recording.h"

#include "base/error.h"
#include "core/memory/guards.h"
#include "core/memory/ledger.h"
#include "core/ops/device/cuda.h"

namespace snug::ops {
namespace {

// On meta each thread plans for itself.
int64_t& recordings_of(c10::Device device) {
  static int64_t on_cuda = 0;
  thread_local int64_t on_meta = 0;
  return device.is_meta() ? on_meta : on_cuda;
}

// One less that keeps the memory, which is free with the last.
void release(c10::Device device) {
  if (device.is_cuda()) cuda::release_recorded_memory();
  if (--recordings_of(device) == 0) memory::ledger_of(device.type()).free_recorded();
}

// What this thread allocates meanwhile is recorded work's.
class RecordedMemory {
 public:
  explicit RecordedMemory(memory::Ledger& ledger) : ledger_(ledger) {
    ledger_.begin_recording();
    memory::current_tag.recorded = true;
  }
  ~RecordedMemory() {
    memory::current_tag.recorded = false;
    ledger_.end_recording();
  }
  RecordedMemory(const RecordedMemory&) = delete;
  RecordedMemory& operator=(const RecordedMemory&) = delete;

 private:
  memory::Ledger& ledger_;
};

}  // namespace

Recording::Recording(c10::Device device, const std::function<void()>& work) : device_(device) {
  SNUG_CHECK(!memory::current_tag.recorded, "work that is recorded records work");
  memory::empty_cache(device_.type());
  if (device_.is_cuda()) cuda::begin_recording();
  ++recordings_of(device_);
  try {
    const RecordedMemory memory(memory::ledger_of(device_.type()));
    work();
    if (device_.is_cuda()) graph_ = cuda::end_recording();
  } catch (...) {
    if (device_.is_cuda()) cuda::stop_recording();
    release(device_);
    throw;
  }
}

Recording::~Recording() {
  try {
    if (device_.is_cuda()) cuda::destroy_graph(graph_);
    release(device_);
  } catch (const std::exception&) {
    // The device has failed, and somebody else says so.
  }
}

void Recording::launch() const {
  if (device_.is_cuda()) cuda::launch_graph(graph_);
}

void refuse_recording(std::string_view what) {
  if (memory::current_tag.recorded)
    throw UserError("cuda_graphs = true: {}, or leave out cuda_graphs", what);
}

}  // namespace snug::ops
