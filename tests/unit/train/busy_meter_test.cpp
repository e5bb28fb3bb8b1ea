// SPDX-License-Identifier: Apache-2.0
#include "train/records/busy_meter.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/time.h>

#include <algorithm>
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

struct Moment {
  double wall = monotonic_seconds(), used = seconds_used();
};

// Between what the accounts say just inside and just outside of what the meter saw, however long
// other programs have the processor in between.
TEST(BusyMeter, IsProcessorTimeOfAllThreadsOverWallTimeAndCores) {
  constexpr double kClocks = 0.01;
  BusyMeter meter(c10::DeviceType::CPU, 1);
  for (const bool both : {false, true}) {
    const Moment before;
    meter.begin();
    const Moment begun;
    if (both) {
      std::thread other([] { compute_for(0.2); });
      compute_for(0.2);
      other.join();
    } else {
      compute_for(0.2);
    }
    const Moment end;
    const double share = meter.share() * machine::usable_cores();
    const Moment after;
    EXPECT_GE(share, (end.used - begun.used) / (after.wall - before.wall) - kClocks) << both;
    EXPECT_LE(share, (after.used - before.used) / (end.wall - begun.wall) + kClocks) << both;
  }
}

TEST(BusyMeter, CoresAreSharedAmongTheProcessesOfARun) {
  BusyMeter alone(c10::DeviceType::CPU, 1), crowded(c10::DeviceType::CPU, 1 << 20);
  alone.begin();
  crowded.begin();
  compute_for(0.05);
  const double before = crowded.share();
  const double share = alone.share() * machine::usable_cores();
  const auto [least, most] = std::minmax({before, crowded.share()});
  EXPECT_GE(share, least - 0.05);
  EXPECT_LE(share, most + 0.05);
}

}  // namespace
}  // namespace snug::train
