// A run's allocations replayed through libtorch's caching allocator: what it reserves, and how
// often a step has to ask the device a second time because memory is nearly full. Such a retry
// frees cached memory, for which the device is stopped, so that a batch that just fits may be
// slower than a smaller one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/caching_allocator.h"

namespace snug::plan {

// An allocation, or its end.
struct MemoryEvent {
  uint64_t serial = 0;  // of the allocation
  int64_t bytes = 0;    // negative: freed
  size_t stream = 0;    // whose memory it is of
  // Freed by the host far ahead of the device, which has to come there before it is used again.
  bool late = false;
  bool empties = false;  // no allocation: the cache is given back to the device
};

// In order; one optimizer step, which is like those after it, is [step_begin, step_end).
struct MemoryEvents {
  std::vector<MemoryEvent> all;
  size_t step_begin = 0, step_end = 0;
};

// Segments of libtorch's caching allocator: its default, or expandable.
enum class Segments { Fixed, Expandable };
// Those that snug's runs use on this machine.
Segments own_segments();

struct Reserved {
  int64_t peak = 0;  // where it does not fit: what it would be without a limit
  bool fits = true;
  DriverCalls of_step;  // of each step, once they are all alike
};
// `limit`: what the allocator may reserve; 0: no limit, and no retries.
Reserved replay(const MemoryEvents& events, int64_t limit, Segments segments);

}  // namespace snug::plan
