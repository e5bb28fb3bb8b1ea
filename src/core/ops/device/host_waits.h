// Counts how often the host waits for the device. Each wait leaves the device idle until the host
// queues more work, so a step may have only a few, and a test counts them: everything that waits
// must go through here. On meta it counts the waits on the planned device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace snug::ops {

// The calling thread's waits so far.
int64_t num_host_waits();

// Call before the host waits for the device, or on meta would.
void note_host_wait(at::DeviceType kernels_of);

// The only element of a tensor; 0 on meta. On cuda the host waits for it.
double read_number(const at::Tensor& number);
// All of a float32 vector's in one wait; zeros on meta.
std::vector<double> read_numbers(const at::Tensor& numbers);

}  // namespace snug::ops
