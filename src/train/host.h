// The machine a run is on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace snug::train {

// Highest resident set of this process so far, in bytes.
int64_t peak_resident_bytes();

// Allocators, threads and budget, before the first tensor. `memory_budget` is "2GiB" or empty,
// num_threads 0 means one per core. Returns the budget in bytes, 0 for none.
int64_t prepare_host(const std::string& memory_budget, int64_t num_threads);

}  // namespace snug::train
