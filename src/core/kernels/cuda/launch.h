// What every CUDA operator takes beside its CPU counterpart's arguments. The operators of this
// folder have the names, argument structs and formulas of kernels/cpu; pointers are to device
// memory, num_threads is not read, and the work is queued on `stream` without waiting for it. Sums
// are float32 (double where the CPU has double) in an order that depends on the sizes alone, so
// that a run repeats to the bit on one kind of device. They compile for every architecture that the
// build names, and tests run them on the CPU (simulated/); they have not yet run on a device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/kernels/scalar.h"

namespace snug::kernels::cuda {

// The most threads of a block, on every device. Kernels declare their own by __launch_bounds__: the
// compiler then leaves registers for as many, without which the device would refuse the launch.
inline constexpr int kMostThreads = 1024;
// A block has this much shared memory, or what it asks for: 99 KiB at most on every device from
// Ampere on.
inline constexpr int64_t kDefaultSharedBytes = 48 << 10;
inline constexpr int64_t kMostSharedBytes = 99 << 10;

// Blocks of a launch. A grid may be long in x, and has 65535 blocks at most in y.
struct Grid {
  Grid(int64_t x, int64_t y = 1) : x(x), y(y) {}  // NOLINT(google-explicit-constructor)
  int64_t x, y;
};

// Around an operator's launches; launch() of launch.cuh calls the latter two. All throw, with
// CUDA's own words: where something failed before; where the device would refuse the launch; where
// the launch just made was refused, or a kernel that still ran failed.
void check_before_launch(const char* kernel);
void prepare_launch(const char* kernel, const Grid& grid, int64_t threads, int64_t shared_bytes);
void check_launch(const char* kernel);

// The one that prepare_launch was last called for.
const char* kernel_being_launched();

}  // namespace snug::kernels::cuda
