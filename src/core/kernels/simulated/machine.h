// What the two halves of the simulation know of each other: the threads (simulation.cpp) and the
// memory they touch (memory.cpp).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "core/kernels/simulated/simulation.h"

namespace snug::kernels::simulated {

// The thread that runs. Intervals count barriers through all blocks and launches, so that what has
// an earlier number than `block_interval` came before all that the block does now.
struct Machine {
  bool running = false;  // a kernel's code, not the host's
  const char* kernel = "";
  Counts* counts = nullptr;
  const char* stack_begin = nullptr;
  const char* stack_end = nullptr;
  const char* arguments = nullptr;  // of the kernel, which each thread copies to its stack
  const char* arguments_end = nullptr;
  int64_t shared_bytes = 0;                    // dynamic
  unsigned thread = 0;                         // in its block
  uint32_t launch_first = 1, block_first = 1;  // the first interval of each
  uint32_t block_interval = 1;                 // since the block's last barrier
  uint32_t interval = 1;                       // since that of the thread's warp
};
extern Machine machine;
// This thread is the one that runs kernels; another may launch some meanwhile, with code that
// reports its loads and stores as well.
extern thread_local bool runs_kernels;

// The interval of a work that begins, which is no kernel's as yet.
uint32_t start_interval();

// What follows counts for the work of that name.
void begin_counts(const char* name);

// Ends the launch with a Fault, or throws it outside of one.
[[noreturn]] void fail(const std::string& what);

// "thread 3 of block (1, 0)", of the launch that runs.
std::string thread_name(uint32_t interval, unsigned thread);

}  // namespace snug::kernels::simulated
