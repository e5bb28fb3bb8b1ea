// How busy the device was during a step: on a CPU the processor time of this process, all of its
// threads, over wall time and cores; on a GPU the share of the last second in which one of its
// kernels ran, as NVIDIA's driver says.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/DeviceType.h>

#include <limits>

namespace snug::train {

class BusyMeter {
 public:
  // `processes`: of this run on this machine, which share its cores.
  BusyMeter(c10::DeviceType device, int processes);

  void begin();
  // Since begin(), 0..1; NaN if it is not known.
  double share();

 private:
  double gpu_share();

  c10::DeviceType device_;
  int cores_;
  double begun_ = 0, processor_seconds_ = 0;
  double asked_ = -1e9;  // the driver, at most once a second: it takes a while
  double gpu_share_ = std::numeric_limits<double>::quiet_NaN();
};

}  // namespace snug::train
