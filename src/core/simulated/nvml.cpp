// The driver's library of the simulated GPUs, libnvidia-ml.so.1 beside the programs that simulate
// them: what `snug doctor` and `snug monitor` ask of it (watch/machine/nvml.cpp). A GPU that is
// none has no temperature, power, load or links: those calls are left out. The structs are laid out
// as NVIDIA's documentation of the interface has them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "core/simulated/device.h"

namespace {

using namespace snug::simulated;  // NOLINT(google-build-using-namespace)

constexpr int kSuccess = 0, kInvalid = 2, kInsufficientSize = 7;

struct Memory {
  unsigned long long total, free, used;
};
struct Pci {
  char legacy[16];
  unsigned int domain, bus, device, device_id, subsystem;
  char id[32];
};
struct Process {
  unsigned int pid;
  unsigned long long bytes;
  unsigned int gpu_instance, compute_instance;
};

// A handle is the GPU's number and one.
void* handle_of(unsigned int index) { return reinterpret_cast<void*>(uintptr_t{index} + 1); }
int index_of(void* device) { return static_cast<int>(reinterpret_cast<uintptr_t>(device)) - 1; }

int give(const std::string& from, char* text, unsigned int length) {
  std::snprintf(text, length, "%s", from.c_str());
  return kSuccess;
}

std::vector<Process> processes_on(int device) {
  std::vector<Process> found;
  for (const DeviceUse& use : uses())
    if (const int32_t pid = use.pid;
        pid != 0 && use.device == device && use.bytes > 0 && is_alive(pid))
      found.push_back(
          {static_cast<unsigned>(pid), static_cast<unsigned long long>(use.bytes), 0, 0});
  return found;
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return kSuccess; }
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int) { return "error of the simulated driver"; }
int nvmlSystemGetDriverVersion(char* text, unsigned int length) {
  return give("simulated", text, length);
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = kDriverVersion;
  return kSuccess;
}
int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = static_cast<unsigned>(std::max(0, num_devices()));
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  *device = handle_of(index);
  return static_cast<int>(index) < num_devices() ? kSuccess : kInvalid;
}
int nvmlDeviceGetName(void*, char* text, unsigned int length) {
  return give(device_name(), text, length);
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned int length) {
  return give("GPU-simulated-" + std::to_string(index_of(device)), text, length);
}
int nvmlDeviceGetPciInfo_v3(void* device, Pci* info) {
  *info = {};
  return give(bus_id(index_of(device)), info->id, sizeof(info->id));
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* info) {
  const auto total = static_cast<unsigned long long>(capacity());
  unsigned long long used = 0;
  for (const Process& process : processes_on(index_of(device))) used += process.bytes;
  *info = {total, total - std::min(total, used), std::min(total, used)};
  return kSuccess;
}
int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = kMajor;
  *minor = kMinor;
  return kSuccess;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned int* count, Process* list) {
  const std::vector<Process> all = processes_on(index_of(device));
  const bool has_room = all.size() <= *count;
  *count = static_cast<unsigned>(all.size());
  if (!has_room) return kInsufficientSize;
  std::ranges::copy(all, list);
  return kSuccess;
}

}  // extern "C"
