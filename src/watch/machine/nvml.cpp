// SPDX-License-Identifier: Apache-2.0
#include "watch/machine/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace snug::machine {
namespace {

// The library's interface, which it keeps from version to version: a changed call gets a new name.
using Device = struct NvmlDevice*;
using Status = int;
constexpr Status kSuccess = 0, kInsufficientSize = 7;

struct MemoryInfo {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned int gpu, memory;  // percent
};
struct PciInfo {
  char legacy_id[16];
  unsigned int domain, bus, device, device_id, subsystem_id;
  char id[32];
};
struct ProcessInfo {
  unsigned int pid;
  unsigned long long bytes;  // all ones: not known
  unsigned int gpu_instance, compute_instance;
};

constexpr unsigned int kMaxLinks = 18;
constexpr int kRemoteSwitch = 2;  // of a link's other end; 0 is a GPU

const char* path_name(int common_ancestor) {
  if (common_ancestor <= 0) return "same board";
  if (common_ancestor <= 20) return "PCIe switch";
  if (common_ancestor <= 30) return "host bridge";
  if (common_ancestor <= 40) return "PCIe within a NUMA node";
  return "PCIe between NUMA nodes";
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

// Null where the installed library does not have a call yet.
struct Nvml::Calls {
  Status (*init)() = nullptr;
  Status (*shutdown)() = nullptr;
  const char* (*error_text)(Status) = nullptr;
  Status (*driver_version)(char*, unsigned int) = nullptr;
  Status (*cuda_version)(int*) = nullptr;
  Status (*count)(unsigned int*) = nullptr;
  Status (*device)(unsigned int, Device*) = nullptr;
  Status (*name)(Device, char*, unsigned int) = nullptr;
  Status (*uuid)(Device, char*, unsigned int) = nullptr;
  Status (*pci)(Device, PciInfo*) = nullptr;
  Status (*memory)(Device, MemoryInfo*) = nullptr;
  Status (*compute_capability)(Device, int*, int*) = nullptr;
  Status (*utilization)(Device, Utilization*) = nullptr;
  Status (*temperature)(Device, int, unsigned int*) = nullptr;
  Status (*power)(Device, unsigned int*) = nullptr;
  Status (*power_limit)(Device, unsigned int*) = nullptr;
  Status (*processes)(Device, unsigned int*, ProcessInfo*) = nullptr;
  Status (*ancestor)(Device, Device, int*) = nullptr;
  Status (*link_state)(Device, unsigned int, int*) = nullptr;
  Status (*link_remote_type)(Device, unsigned int, int*) = nullptr;
  Status (*link_remote_pci)(Device, unsigned int, PciInfo*) = nullptr;
  Status (*mig_mode)(Device, unsigned int*, unsigned int*) = nullptr;

  void load(void* library);
  std::string words(Status status) const;
  Gpu gpu(unsigned int index, Device device) const;
  std::map<int64_t, int64_t> bytes_of_processes(Device device) const;
  void add_links(std::vector<Gpu>& gpus, const std::vector<Device>& devices) const;
  int lanes(Device from, const Gpu& to) const;
};

void Nvml::Calls::load(void* library) {
  const auto find = [&](auto& call, const char* symbol) {
    call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(::dlsym(library, symbol));
  };
  find(init, "nvmlInit_v2");
  find(shutdown, "nvmlShutdown");
  find(error_text, "nvmlErrorString");
  find(driver_version, "nvmlSystemGetDriverVersion");
  find(cuda_version, "nvmlSystemGetCudaDriverVersion_v2");
  find(count, "nvmlDeviceGetCount_v2");
  find(device, "nvmlDeviceGetHandleByIndex_v2");
  find(name, "nvmlDeviceGetName");
  find(uuid, "nvmlDeviceGetUUID");
  find(pci, "nvmlDeviceGetPciInfo_v3");
  find(memory, "nvmlDeviceGetMemoryInfo");
  find(compute_capability, "nvmlDeviceGetCudaComputeCapability");
  find(utilization, "nvmlDeviceGetUtilizationRates");
  find(temperature, "nvmlDeviceGetTemperature");
  find(power, "nvmlDeviceGetPowerUsage");
  find(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  find(processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  find(ancestor, "nvmlDeviceGetTopologyCommonAncestor");
  find(link_state, "nvmlDeviceGetNvLinkState");
  find(link_remote_type, "nvmlDeviceGetNvLinkRemoteDeviceType");
  find(link_remote_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
  find(mig_mode, "nvmlDeviceGetMigMode");
}

std::string Nvml::Calls::words(Status status) const {
  const char* text = error_text != nullptr ? error_text(status) : nullptr;
  return fmt::format("{} (NVML {})", text != nullptr ? text : "error", status);
}

namespace {

template <class... Parameters, class... Arguments>
bool ask(Status (*call)(Parameters...), Arguments... arguments) {
  return call != nullptr && call(arguments...) == kSuccess;
}

template <class Call, class... Before>
std::string text_of(Call call, Before... before) {
  std::array<char, 96> text{};
  if (!ask(call, before..., text.data(), static_cast<unsigned int>(text.size() - 1))) return {};
  return text.data();
}

template <class Call, class... Before>
std::optional<int> number_of(Call call, int divisor, Before... before) {
  unsigned int value = 0;
  if (!ask(call, before..., &value)) return std::nullopt;
  return static_cast<int>(value) / divisor;
}

}  // namespace

Gpu Nvml::Calls::gpu(unsigned int index, Device device) const {
  Gpu gpu{.index = static_cast<int>(index),
          .name = text_of(name, device),
          .uuid = text_of(uuid, device),
          .temperature = number_of(temperature, 1, device, 0),
          .power_watts = number_of(power, 1000, device),
          .power_limit_watts = number_of(power_limit, 1000, device)};
  if (PciInfo info{}; ask(pci, device, &info)) gpu.bus_id = lower(info.id);
  if (MemoryInfo info{}; ask(memory, device, &info)) {
    gpu.memory_total = static_cast<int64_t>(info.total);
    gpu.memory_used = static_cast<int64_t>(info.used);
  }
  if (Utilization info{}; ask(utilization, device, &info)) {
    gpu.busy_percent = static_cast<int>(info.gpu);
    gpu.memory_busy_percent = static_cast<int>(info.memory);
  }
  if (int major = 0, minor = 0; ask(compute_capability, device, &major, &minor))
    gpu.compute_capability = 10 * major + minor;
  unsigned int mode = 0, pending = 0;
  gpu.mig = ask(mig_mode, device, &mode, &pending) && mode == 1;
  gpu.process_bytes = bytes_of_processes(device);
  return gpu;
}

// In a container the driver's numbers may be those of the machine outside.
std::map<int64_t, int64_t> Nvml::Calls::bytes_of_processes(Device device) const {
  std::vector<ProcessInfo> list(64);
  if (processes == nullptr) return {};
  auto size = static_cast<unsigned int>(list.size());
  Status status = processes(device, &size, list.data());
  if (status == kInsufficientSize) {
    list.resize(size + 16);  // some may have come since
    size = static_cast<unsigned int>(list.size());
    status = processes(device, &size, list.data());
  }
  std::map<int64_t, int64_t> bytes;
  if (status != kSuccess) return bytes;
  for (size_t i = 0; i < std::min<size_t>(size, list.size()); ++i)
    if (list[i].bytes != ~0ULL) bytes[list[i].pid] += static_cast<int64_t>(list[i].bytes);
  return bytes;
}

// Active NVLinks that lead to the other GPU, or to a switch, which every GPU beside it hangs on.
int Nvml::Calls::lanes(Device from, const Gpu& to) const {
  int count = 0;
  for (unsigned int link = 0; link < kMaxLinks; ++link) {
    int active = 0, remote = 0;
    if (!ask(link_state, from, link, &active) || active == 0) continue;
    if (ask(link_remote_type, from, link, &remote) && remote == kRemoteSwitch) {
      ++count;
    } else if (PciInfo info{}; ask(link_remote_pci, from, link, &info)) {
      count += lower(info.id) == to.bus_id ? 1 : 0;
    }
  }
  return count;
}

void Nvml::Calls::add_links(std::vector<Gpu>& gpus, const std::vector<Device>& devices) const {
  for (size_t i = 0; i < gpus.size(); ++i) {
    for (size_t j = 0; j < gpus.size(); ++j) {
      if (i == j) continue;
      int common = 0;
      if (const int count = lanes(devices[i], gpus[j]); count > 0)
        gpus[i].links.push_back({gpus[j].index, "NVLink", count});
      else if (ask(ancestor, devices[i], devices[j], &common))
        gpus[i].links.push_back({gpus[j].index, path_name(common), 0});
    }
  }
}

Nvml::Nvml(const std::vector<std::string>& libraries) : calls_(std::make_unique<Calls>()) {
  for (const std::string& name : libraries) {
    library_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ != nullptr) break;
  }
  if (library_ == nullptr) {
    why_not_ = fmt::format("there is no NVIDIA driver here ({} cannot be opened)",
                           libraries.empty() ? "its library" : libraries.front());
    return;
  }
  calls_->load(library_);
  const bool is_whole = calls_->init != nullptr && calls_->shutdown != nullptr &&
                        calls_->count != nullptr && calls_->device != nullptr;
  if (!is_whole) {
    why_not_ = "the NVIDIA driver's library is too old, or another's";
    return;
  }
  const Status status = calls_->init();
  is_open_ = status == kSuccess;
  if (!is_open_)
    why_not_ = fmt::format("the NVIDIA driver does not answer: {}", calls_->words(status));
}

// The library stays loaded: unloading it while its threads run is not safe.
Nvml::~Nvml() {
  if (is_open_) calls_->shutdown();
}

Gpus Nvml::look(Links links) const {
  Gpus found{.has_library = library_ != nullptr, .why_not = why_not_};
  if (!is_open_) return found;
  found.driver_version = text_of(calls_->driver_version);
  if (int version = 0; ask(calls_->cuda_version, &version))
    found.cuda_version = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  unsigned int count = 0;
  if (const Status status = calls_->count(&count); status != kSuccess) {
    found.why_not = fmt::format("the NVIDIA driver does not say which GPUs there are: {}",
                                calls_->words(status));
    return found;
  }
  std::vector<Device> devices;
  for (unsigned int i = 0; i < count; ++i) {
    Device device = nullptr;
    if (calls_->device(i, &device) != kSuccess) continue;  // one that has fallen off the bus
    devices.push_back(device);
    found.gpus.push_back(calls_->gpu(i, device));
  }
  if (links == Links::Read) calls_->add_links(found.gpus, devices);
  if (found.gpus.empty()) found.why_not = "the NVIDIA driver shows no GPU";
  return found;
}

Gpus gpus(Links links) {
  // Opened once: it takes a while, and who watches asks every second. The second path is WSL's.
  static const Nvml library({"libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"});
  return library.look(links);
}

}  // namespace snug::machine
