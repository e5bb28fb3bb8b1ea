// This machine's hardware and how much of it is in use, from kernel files and NVIDIA's management
// library (NVML), which is loaded at run time if it exists.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace snug::machine {

// Cores that this process may use, limited by its control group's quota (rounded up).
int usable_cores();

struct Processor {
  std::string name;
  int cores = 0;  // usable_cores()
  // avx2, avx512f, avx512_bf16, amx_bf16, …: those that snug's kernels use.
  std::vector<std::string> features;
};
Processor processor();

struct Memory {
  int64_t total = 0, available = 0;           // of the machine
  std::optional<int64_t> limit, in_use;       // of this process's control group or a parent
  std::optional<int64_t> page_locked_limit;   // RLIMIT_MEMLOCK; empty: none
  std::optional<int64_t> shared_memory_size;  // of /dev/shm
};
Memory memory();

struct Disk {
  int64_t size = 0, free = 0;
  std::string kind;  // file system
};
// The folder itself or its nearest parent that exists.
std::filesystem::path nearest_folder(const std::filesystem::path& folder);
Disk disk(const std::filesystem::path& folder);  // of nearest_folder

// The kernel's count of out-of-memory kills in this control group, else on the machine; empty if
// unknown.
std::optional<int64_t> out_of_memory_kills();

// The link between two GPUs.
struct GpuLink {
  int other = 0;
  std::string kind;  // NVLink, PCIe switch, host bridge, …
  int lanes = 0;     // NVLink connections
};

struct Gpu {
  int index = 0;
  std::string name, uuid, bus_id;
  int64_t memory_total = 0, memory_used = 0;
  std::optional<int> busy_percent, memory_busy_percent, temperature, power_watts, power_limit_watts;
  std::map<int64_t, int64_t> process_bytes;  // by process id, as the driver counts
  std::vector<GpuLink> links;                // with Links::Read
  bool mig = false;
  int compute_capability = 0;  // 75 is 7.5; 0: unknown
};

struct Gpus {
  bool has_library = false;
  std::string why_not;                       // the reason if there are no GPUs
  std::string driver_version, cuda_version;  // the newest CUDA that the driver supports
  std::vector<Gpu> gpus;
};
enum class Links { Leave, Read };  // reading takes about a hundred calls for eight GPUs
Gpus gpus(Links links = Links::Leave);

// A process's use of resources; empty if it has ended.
struct ProcessUse {
  double processor_seconds = 0;
  int64_t resident = 0;
  int threads = 0;
  double started = 0;  // seconds since the epoch
};
std::optional<ProcessUse> process_use(int64_t pid);

bool in_container();
std::string describe();  // one line: processor, cores, memory, GPUs

}  // namespace snug::machine
