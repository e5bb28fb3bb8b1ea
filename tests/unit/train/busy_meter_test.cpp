// SPDX-License-Identifier: Apache-2.0
#include "train/records/busy_meter.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/time.h>

#include <cmath>
#include <thread>

#include "base/clock.h"
#include "watch/machine/machine.h"

namespace snug::train {
namespace {

// The kernel's other account of this process.
double seconds_used() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void compute_for(double seconds) {
  const double end = monotonic_seconds() + seconds;
  while (monotonic_seconds() < end) {
  }
}

TEST(BusyMeter, IsProcessorTimeOfAllThreadsOverWallTimeAndCores) {
  BusyMeter meter(c10::DeviceType::CPU, 1);
  for (const bool both : {false, true}) {
    const double begun = monotonic_seconds(), used = seconds_used();
    meter.begin();
    if (both) {
      std::thread other([] { compute_for(0.2); });
      compute_for(0.2);
      other.join();
    } else {
      compute_for(0.2);
    }
    const double share = meter.share();
    const double expected = (seconds_used() - used) / (monotonic_seconds() - begun);
    EXPECT_NEAR(share * machine::usable_cores(), expected, 0.02) << both;
  }
}

TEST(BusyMeter, CoresAreSharedAmongTheProcessesOfARun) {
  BusyMeter alone(c10::DeviceType::CPU, 1), crowded(c10::DeviceType::CPU, 1 << 20);
  alone.begin();
  crowded.begin();
  compute_for(0.05);
  EXPECT_NEAR(crowded.share(), alone.share() * machine::usable_cores(), 0.05);
}

}  // namespace
}  // namespace snug::train
