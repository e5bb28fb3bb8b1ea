// A stand-in for NVIDIA's management library on a machine of three GPUs: 0 and 1 are joined by four
// NVLinks, 2 hangs on another host bridge, is divided (MIG) and does not tell how busy it is. With
// NVML_FAILS, a library whose driver was replaced under it. The structs are laid out as NVIDIA's
// documentation of the interface has them.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstring>

namespace {

constexpr int kSuccess = 0, kInvalid = 2, kNotSupported = 3, kInsufficientSize = 7, kMismatch = 18;

struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned int gpu, memory;
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

int gpus[3] = {0, 1, 2};
int index_of(void* device) { return *static_cast<int*>(device); }

}  // namespace

extern "C" {

int nvmlInit_v2() {
#ifdef NVML_FAILS
  return kMismatch;
#else
  return kSuccess;
#endif
}
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int status) {
  return status == kMismatch ? "Driver/library version mismatch" : "Unknown Error";
}
int nvmlSystemGetDriverVersion(char* text, unsigned int length) {
  std::snprintf(text, length, "580.65.06");
  return kSuccess;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return kSuccess;
}
int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = 3;
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  if (index > 2) return kInvalid;
  *device = &gpus[index];
  return kSuccess;
}
int nvmlDeviceGetName(void*, char* text, unsigned int length) {
  std::snprintf(text, length, "NVIDIA A100-SXM4-40GB");
  return kSuccess;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned int length) {
  std::snprintf(text, length, "GPU-%d", index_of(device));
  return kSuccess;
}
int nvmlDeviceGetPciInfo_v3(void* device, Pci* info) {
  std::memset(info, 0, sizeof *info);
  std::snprintf(info->id, sizeof info->id, "00000000:0%d:00.0", index_of(device) + 1);
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* info) {
  info->total = 40ULL << 30;
  info->used = (1ULL + index_of(device)) << 30;
  info->free = info->total - info->used;
  return kSuccess;
}
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  if (index_of(device) == 2) return kNotSupported;
  *major = 8;
  *minor = index_of(device);
  return kSuccess;
}
int nvmlDeviceGetUtilizationRates(void* device, Utilization* info) {
  if (index_of(device) == 2) return kNotSupported;
  *info = {93, 41};
  return kSuccess;
}
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned int* degrees) {
  if (sensor != 0) return kInvalid;
  *degrees = 60U + static_cast<unsigned int>(index_of(device));
  return kSuccess;
}
int nvmlDeviceGetPowerUsage(void*, unsigned int* milliwatts) {
  *milliwatts = 312'999;
  return kSuccess;
}
int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned int* milliwatts) {
  *milliwatts = 400'000;
  return kSuccess;
}
// Process 1000 has memory on each GPU; on the first there are a hundred others as well.
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned int* count, Process* list) {
  const unsigned int there = index_of(device) == 0 ? 101 : 1;
  const unsigned int room = *count;
  *count = there;
  if (room < there) return kInsufficientSize;
  for (unsigned int i = 0; i < there; ++i)
    list[i] = {1000U + i, i == 50 ? ~0ULL : (512ULL + i) << 20, ~0U, ~0U};
  return kSuccess;
}
int nvmlDeviceGetTopologyCommonAncestor(void*, void*, int* level) {
  *level = 30;
  return kSuccess;
}
int nvmlDeviceGetNvLinkState(void* device, unsigned int link, int* active) {
  if (index_of(device) == 2) return kNotSupported;
  *active = link < 4 ? 1 : 0;
  return kSuccess;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned int, int* type) {
  *type = 0;
  return kSuccess;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned int, Pci* info) {
  std::memset(info, 0, sizeof *info);
  std::snprintf(info->id, sizeof info->id, "00000000:0%d:00.0", 2 - index_of(device));
  return kSuccess;
}
int nvmlDeviceGetMigMode(void* device, unsigned int* mode, unsigned int* pending) {
  *mode = *pending = index_of(device) == 2 ? 1 : 0;
  return kSuccess;
}

}  // extern "C"
