// What every CUDA operator takes beside its CPU counterpart's arguments. The operators of this
// folder have the names, argument structs and formulas of kernels/cpu; pointers are to device
// memory, num_threads is not read, and the work is queued on `stream` without waiting for it. Sums
// are float32 (double where the CPU has double) in an order that depends on the sizes alone, so
// that a run repeats to the bit on one kind of device. They compile for every architecture that the
// build names, but have not yet run on a device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/kernels/scalar.h"

namespace snug::kernels::cuda {

// Around an operator's launches. Both throw with CUDA's own words: the one where something failed
// before, the other where the launch just made was refused, or a kernel that still ran failed.
void check_before_launch(const char* kernel);
void check_launch(const char* kernel);

}  // namespace snug::kernels::cuda
