// SPDX-License-Identifier: Apache-2.0
#include "train/records/busy_meter.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "base/clock.h"
#include "train/launch/layout.h"
#include "watch/machine/machine.h"

namespace snug::train {
namespace {

constexpr double kUnknownShare = std::numeric_limits<double>::quiet_NaN();

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The only GPU, or the one that this process has memory on; none where the driver knows the process
// by another number, as in some containers.
double busy_share(const machine::Gpus& found) {
  const auto share = [](const machine::Gpu& gpu) {
    return gpu.busy_percent ? *gpu.busy_percent / 100.0 : kUnknownShare;
  };
  if (found.gpus.size() == 1) return share(found.gpus.front());
  const auto own = std::ranges::find_if(
      found.gpus, [](const machine::Gpu& gpu) { return gpu.process_bytes.contains(::getpid()); });
  return own == found.gpus.end() ? kUnknownShare : share(*own);
}

}  // namespace

BusyMeter::BusyMeter(c10::DeviceType device, int processes)
    : device_(device), cores_(launch::threads_each(processes)) {}

void BusyMeter::begin() {
  begun_ = monotonic_seconds();
  processor_seconds_ = processor_seconds();
}

double BusyMeter::share() {
  if (device_ == c10::DeviceType::CUDA) return gpu_share();
  const double seconds = monotonic_seconds() - begun_;
  if (seconds <= 0) return kUnknownShare;
  return (processor_seconds() - processor_seconds_) / (seconds * cores_);
}

double BusyMeter::gpu_share() {
  constexpr double kInterval = 1;
  if (const double now = monotonic_seconds(); now - asked_ >= kInterval) {
    asked_ = now;
    gpu_share_ = busy_share(machine::gpus());
  }
  return gpu_share_;
}

}  // namespace snug::train
