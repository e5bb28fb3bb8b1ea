// SPDX-License-Identifier: Apache-2.0
#include "core/ops/device/recording.h"

#include "base/error.h"
#include "core/memory/guards.h"
#include "core/memory/ledger.h"
#include "core/ops/device/cuda.h"

namespace snug::ops {
namespace {

// By device: meta and cuda.
int64_t& recordings_of(c10::Device device) {
  static int64_t counts[2] = {};
  return counts[device.is_meta() ? 0 : 1];
}

void begin(c10::Device device) {
  SNUG_CHECK(!memory::current_tag.recorded, "work that is recorded records work");
  memory::empty_cache(device.type());
  memory::ledger_of(device.type()).begin_recording();
  memory::current_tag.recorded = true;
  if (device.is_cuda()) cuda::begin_recording();
}

void end(c10::Device device) {
  memory::current_tag.recorded = false;
  memory::ledger_of(device.type()).end_recording();
}

// One less that keeps the memory, which is free with the last.
void release(c10::Device device) {
  if (device.is_cuda()) cuda::release_recorded_memory();
  if (--recordings_of(device) == 0) memory::ledger_of(device.type()).free_recorded();
}

}  // namespace

Recording::Recording(c10::Device device, const std::function<void()>& work) : device_(device) {
  ++recordings_of(device_);
  begin(device_);
  try {
    work();
    if (device_.is_cuda()) graph_ = cuda::end_recording();
  } catch (...) {
    if (device_.is_cuda()) cuda::stop_recording();
    end(device_);
    release(device_);
    throw;
  }
  end(device_);
}

Recording::~Recording() {
  if (device_.is_cuda()) cuda::destroy_graph(graph_);
  release(device_);
}

void Recording::launch() const {
  if (device_.is_cuda()) cuda::launch_graph(graph_);
}

void refuse_recording(std::string_view what) {
  if (memory::current_tag.recorded)
    throw UserError("cuda_graphs = true: {}, or leave out cuda_graphs", what);
}

}  // namespace snug::ops
