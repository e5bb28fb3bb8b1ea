// The machine a run is on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "recipe/recipe.h"

namespace snug::engine {

// Highest resident set of this process so far, in bytes.
int64_t peak_resident_bytes();

// Of a GPU's memory, once its libraries are loaded.
struct GpuMemory {
  int64_t free = 0;      // that nobody has
  int64_t reserved = 0;  // by our allocator, for what libraries keep
  int64_t driver = 0;    // the driver's, for this program
};

struct MemoryLimits {
  int64_t budget_bytes = 0;    // of the device's memory, less the driver's share; 0: none
  int64_t reserved_bytes = 0;  // what our allocator may come to hold; 0: no limit is known
};
// What a run may take of a GPU, of which it was given `memory_budget` ("16GB" or empty).
MemoryLimits limits_of(const std::string& memory_budget, const GpuMemory& gpu);

struct Host {
  at::Device device = at::kCPU;  // that the run computes on
  int64_t budget_bytes = 0;      // of that device's memory, less the driver's share; 0: none
  int64_t library_bytes = 0;     // that cuBLAS keeps there for itself
  int64_t reserved_limit = 0;    // of a GPU's memory, what our allocator may hold; 0 for a cpu
  int64_t library_reserved = 0;  // what it holds there for the libraries
};

// Threads of this process: as many as wanted, or (0) as many as it has cores, unless
// OMP_NUM_THREADS says otherwise.
void use_threads(int64_t wanted);

// Allocators, threads, device and its budget, before the first tensor. `memory_budget` is "2GiB" or
// empty, num_threads 0 means one per core, `accelerator` is auto, cpu or cuda.
Host prepare_host(const std::string& memory_budget, int64_t num_threads,
                  const recipe::Word<recipe::Accelerator>& accelerator);

// Of optimizer_offload = disk:FOLDER, or of fit_disk, before a model is read: throws UserError
// where no file can be made there, warns where files are memory.
void check_offload_folder(const recipe::Recipe& recipe);

}  // namespace snug::engine
