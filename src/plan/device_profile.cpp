// SPDX-License-Identifier: Apache-2.0
#include "plan/device_profile.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <yaml-cpp/yaml.h>
#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "base/bytes.h"
#include "base/error.h"
#include "kernels/cpu/linalg/cpu_features.h"

namespace snug::plan {
namespace {

// Data sheets: memory in GB as the driver shows it, dense 16-bit tensor and 32-bit rates (TF32 is
// not used) in TFLOP/s, memory bandwidth in GB/s, PCIe in GB/s one way as measured in practice.
struct Entry {
  const char* name;
  double memory_gib, tflops_16, tflops_32, gb_per_second, link_gb_per_second;
};
constexpr std::array kEntries = {
    Entry{"v100-16", 15.8, 112, 15.7, 900, 12},  Entry{"v100-32", 31.7, 112, 15.7, 900, 12},
    Entry{"a100-40", 39.4, 312, 19.5, 1555, 24}, Entry{"a100-80", 79.2, 312, 19.5, 2039, 24},
    Entry{"h100-80", 79.1, 989, 67, 3350, 50},   Entry{"h100-94", 93.1, 835, 60, 3900, 50},
    Entry{"h200-141", 139.8, 989, 67, 4800, 50}, Entry{"rtx-4090", 23.6, 165, 82.6, 1008, 24},
    Entry{"rtx-5090", 31.4, 209, 105, 1792, 50}, Entry{"l4", 22.0, 121, 30.3, 300, 24},
    Entry{"t4", 14.6, 65, 8.1, 320, 12},
};
// CUDA's context, cuBLAS with its workspace and loaded kernels; as measured on recent drivers it is
// 0.4 to 0.6 GiB.
constexpr int64_t kContextBytes = 600 * kMiB;
constexpr double kHostBytesPerSecond = 60e9;

DeviceProfile profile_of(const Entry& entry) {
  return {.name = entry.name,
          .memory_bytes = static_cast<int64_t>(entry.memory_gib * static_cast<double>(kGiB)),
          .context_bytes = kContextBytes,
          .flops_16bit = entry.tflops_16 * 1e12,
          .flops_32bit = entry.tflops_32 * 1e12,
          .bytes_per_second = entry.gb_per_second * 1e9,
          .link_bytes_per_second = entry.link_gb_per_second * 1e9,
          .host_bytes_per_second = kHostBytesPerSecond};
}

std::string letters_and_digits(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)))
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Bytes read and written per second by a copy that no cache holds; best of a few.
double measured_copy_rate() {
  using Clock = std::chrono::steady_clock;
  constexpr size_t kBytes = size_t{64} << 20;
  std::vector<char> from(kBytes, 1), to(kBytes, 2);
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    const auto start = Clock::now();
#pragma omp parallel for schedule(static)
    for (int64_t part = 0; part < 64; ++part)
      std::memcpy(to.data() + part * (kBytes / 64), from.data() + part * (kBytes / 64),
                  kBytes / 64);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, 2.0 * static_cast<double>(kBytes) / seconds);
  }
  return best;
}

DeviceProfile this_cpu(int64_t budget_bytes) {
  namespace cpu = kernels::cpu;
  const int64_t pages = ::sysconf(_SC_PHYS_PAGES);
  const int64_t all = pages * ::sysconf(_SC_PAGESIZE);
  const double rate = measured_copy_rate();
  return {.name = cpu::cpu_summary(),
          .kind = at::kCPU,
          .memory_bytes = budget_bytes > 0 ? budget_bytes : all,
          .host_bytes = all,
          .flops_16bit = cpu::cpu_peak_flops_estimate(cpu::Scalar::BF16),
          .flops_32bit = cpu::cpu_peak_flops_estimate(cpu::Scalar::F32),
          .bytes_per_second = rate,
          .link_bytes_per_second = rate / 2,
          .host_bytes_per_second = rate};
}

DeviceProfile from_yaml(const std::string& path) {
  DeviceProfile profile{.name = path};
  try {
    const YAML::Node file = YAML::LoadFile(path);
    const auto number = [&](const char* key, double fallback) {
      return file[key] ? file[key].as<double>() : fallback;
    };
    if (!file.IsMap() || !file["memory"])
      throw UserError("{}: memory is missing; give at least memory: 24GiB", path);
    for (const auto& entry : file) {
      static constexpr std::array kKeys = {"name",
                                           "kind",
                                           "memory",
                                           "context",
                                           "tflops_16bit",
                                           "tflops_32bit",
                                           "gb_per_second",
                                           "host_memory",
                                           "link_gb_per_second",
                                           "host_gb_per_second",
                                           "product_efficiency"};
      const auto key = entry.first.as<std::string>();
      if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end())
        throw UserError("{}: {} is not a key of a device profile; known are {}", path, key,
                        fmt::join(kKeys, ", "));
    }
    if (file["name"]) profile.name = file["name"].as<std::string>();
    const std::string kind = file["kind"] ? file["kind"].as<std::string>() : "cuda";
    if (kind != "cpu" && kind != "cuda")
      throw UserError("{}: kind = {}: is not one of cpu, cuda", path, kind);
    profile.kind = kind == "cpu" ? at::kCPU : at::kCUDA;
    profile.memory_bytes = parse_bytes(file["memory"].as<std::string>(), path + ": memory");
    profile.context_bytes = file["context"]
                                ? parse_bytes(file["context"].as<std::string>(), path + ": context")
                            : profile.kind == at::kCUDA ? kContextBytes
                                                        : 0;
    if (file["host_memory"])
      profile.host_bytes =
          parse_bytes(file["host_memory"].as<std::string>(), path + ": host_memory");
    profile.flops_16bit = number("tflops_16bit", 100) * 1e12;
    profile.flops_32bit = number("tflops_32bit", 20) * 1e12;
    profile.bytes_per_second = number("gb_per_second", 1000) * 1e9;
    profile.link_bytes_per_second = number("link_gb_per_second", 24) * 1e9;
    profile.host_bytes_per_second = number("host_gb_per_second", kHostBytesPerSecond / 1e9) * 1e9;
    profile.product_efficiency = number("product_efficiency", profile.product_efficiency);
  } catch (const YAML::Exception& error) {
    throw UserError("{}: {}", path, error.what());
  }
  const double rates[] = {profile.flops_16bit,           profile.flops_32bit,
                          profile.bytes_per_second,      profile.link_bytes_per_second,
                          profile.host_bytes_per_second, profile.product_efficiency};
  for (const double rate : rates)
    if (!(rate > 0)) throw UserError("{}: every rate must be above 0", path);
  if (profile.product_efficiency > 1)
    throw UserError("{}: product_efficiency = {}: is a share, at most 1", path,
                    profile.product_efficiency);
  if (profile.usable_bytes() <= 0) throw UserError("{}: context leaves nothing of memory", path);
  return profile;
}

}  // namespace

std::vector<std::string> profile_names() {
  std::vector<std::string> names{"cpu"};
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

DeviceProfile find_profile(const std::string& name, int64_t budget_bytes) {
  DeviceProfile profile;
  const std::string wanted = letters_and_digits(name);
  const auto* found = std::find_if(kEntries.begin(), kEntries.end(), [&](const Entry& entry) {
    return letters_and_digits(entry.name) == wanted;
  });
  if (wanted == "cpu") return this_cpu(budget_bytes);
  if (found != kEntries.end())
    profile = profile_of(*found);
  else if (std::filesystem::is_regular_file(name))
    profile = from_yaml(name);
  else
    throw UserError("device = {}: is neither one of {} nor the YAML file of a device's profile",
                    name, fmt::join(profile_names(), ", "));
  if (budget_bytes > 0) profile.memory_bytes = profile.context_bytes + budget_bytes;
  return profile;
}

}  // namespace snug::plan
