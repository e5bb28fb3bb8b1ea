// Which GPU is simulated, and what its processes have of it: for the runtime (runtime.cpp,
// memory.cpp), which reports its own process, and for the driver's library (nvml.cpp), which shows
// all of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace snug::simulated {

// A driver version that this libtorch wants, and the compute capability of what it is built for,
// whatever GPU is named.
constexpr int kDriverVersion = 13000;
constexpr int kMajor = 9, kMinor = 0;

// "simulated H100" where SNUG_SIMULATED_GPU=h100-80 names a profile of recipe/gpus.h, else
// "simulated GPU". A name that is no profile ends the program.
std::string device_name();
// Bytes of one: SNUG_SIMULATED_MEMORY, else the profile's, else 16 GiB.
int64_t capacity();
// How many GPUs the machine has: SNUG_SIMULATED_GPUS, 8 where it is not set.
int num_devices();
// Those of the machine that the program may see: the list in CUDA_VISIBLE_DEVICES up to the first
// that is none.
std::vector<int> visible_devices();
// The machine's number of visible device `device`; -1 where there is none.
int device_of_machine(int device);
// "0000:03:00.0" for device 2 of the machine.
std::string bus_id(int device);

// What a process has. Its memory is apart from another's, so that two on one GPU may have more than
// there is.
struct DeviceUse {
  std::atomic<int32_t> pid;  // 0: nobody's
  std::atomic<int32_t> device;
  std::atomic<int64_t> bytes;
};

// In a file that this user's processes share; those of processes that have ended are anybody's.
// Empty where such a file cannot be had.
std::span<DeviceUse> uses();
bool is_alive(int32_t pid);

// This process has that device of the machine, and so many bytes of it.
void report_device(int device);
void report_bytes(int64_t bytes);

}  // namespace snug::simulated
