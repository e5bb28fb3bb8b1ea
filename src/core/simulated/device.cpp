// SPDX-License-Identifier: Apache-2.0
#include "core/simulated/device.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "recipe/gpus.h"

namespace snug::simulated {
namespace {

constexpr int64_t kDefaultCapacity = int64_t{16} << 30;
constexpr int kDefaultDevices = 8;
constexpr size_t kMostProcesses = 256;

// Null where no profile is named.
const recipe::Gpu* profile() {
  static const recipe::Gpu* const kProfile = []() -> const recipe::Gpu* {
    const char* given = std::getenv("SNUG_SIMULATED_GPU");
    if (given == nullptr) return nullptr;
    const auto found = std::ranges::find(recipe::gpus(), given, &recipe::Gpu::profile);
    if (*given != '\0' && found != recipe::gpus().end()) return &*found;
    std::fprintf(stderr, "SNUG_SIMULATED_GPU=%s: no such profile; use one of", given);
    for (const std::string& name : recipe::gpu_profile_names())
      std::fprintf(stderr, " %s", name.c_str());
    std::fprintf(stderr, "\n");
    std::exit(2);
  }();
  return kProfile;
}

// The same on every look. Its first owner may be a process that has ended.
DeviceUse* own_use() {
  static DeviceUse* const kOwn = []() -> DeviceUse* {
    const auto self = static_cast<int32_t>(::getpid());
    for (DeviceUse& use : uses()) {
      int32_t owner = use.pid;
      const bool is_free = owner == 0 || owner == self || !is_alive(owner);
      if (!is_free || !use.pid.compare_exchange_strong(owner, self)) continue;
      use.bytes = 0;
      use.device = device_of_machine(0);
      return &use;
    }
    return nullptr;
  }();
  return kOwn;
}

}  // namespace

std::string device_name() {
  return std::string("simulated ") + std::string(profile() ? profile()->cuda_name : "GPU");
}

int64_t capacity() {
  static const int64_t kBytes = [] {
    if (const char* given = std::getenv("SNUG_SIMULATED_MEMORY")) return int64_t{std::atoll(given)};
    if (profile() == nullptr) return kDefaultCapacity;
    return static_cast<int64_t>(profile()->memory_gib * static_cast<double>(int64_t{1} << 30));
  }();
  return kBytes;
}

int num_devices() {
  const char* given = std::getenv("SNUG_SIMULATED_GPUS");
  return given == nullptr ? kDefaultDevices : std::atoi(given);
}

std::string bus_id(int device) {
  char text[16];
  std::snprintf(text, sizeof(text), "0000:%02x:00.0", static_cast<unsigned>(device + 1) & 0xff);
  return text;
}

std::vector<int> visible_devices() {
  const int all = num_devices();
  std::vector<int> found;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) {
    for (int device = 0; device < all; ++device) found.push_back(device);
    return found;
  }
  for (const char* at = visible; *at != '\0';) {
    char* end = nullptr;
    const long index = std::strtol(at, &end, 10);
    if (end == at || index < 0 || index >= all) break;
    found.push_back(static_cast<int>(index));
    at = *end == ',' ? end + 1 : end;
    if (*end != ',') break;
  }
  return found;
}

int device_of_machine(int device) {
  const std::vector<int> all = visible_devices();
  const auto index = static_cast<size_t>(device);
  return device >= 0 && index < all.size() ? all[index] : -1;
}

std::span<DeviceUse> uses() {
  static const std::span<DeviceUse> kUses = []() -> std::span<DeviceUse> {
    const std::string name = "/snug-simulated-gpu-" + std::to_string(::getuid());
    const int file = ::shm_open(name.c_str(), O_RDWR | O_CREAT, 0600);
    constexpr size_t kBytes = kMostProcesses * sizeof(DeviceUse);
    if (file < 0) return {};
    void* start = MAP_FAILED;
    if (::ftruncate(file, kBytes) == 0)
      start = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (start == MAP_FAILED) return {};
    return {static_cast<DeviceUse*>(start), kMostProcesses};
  }();
  return kUses;
}

bool is_alive(int32_t pid) { return ::kill(pid, 0) == 0 || errno == EPERM; }

void report_device(int device) {
  if (DeviceUse* own = own_use()) own->device = device;
}

void report_bytes(int64_t bytes) {
  if (DeviceUse* own = own_use()) own->bytes = bytes;
}

}  // namespace snug::simulated
