// How often the program has waited for its device. Each wait leaves the device idle until the host
// has asked for more, so a step may have few of them, and a test counts them: whatever waits goes
// through here. On meta what is counted is what would wait on the device that is planned for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace snug::ops {

// Of the calling thread, so far.
int64_t num_host_waits();

// Called before the host waits for the device, or would: nothing else is to make it do so.
void note_host_wait(at::DeviceType kernels_of);

// The only element of a tensor; 0 on meta. On cuda the host waits for it.
double read_number(const at::Tensor& number);

}  // namespace snug::ops
