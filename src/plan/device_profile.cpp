// SPDX-License-Identifier: Apache-2.0
#include "plan/device_profile.h"

#include <fmt/ranges.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <span>

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "config/gpus.h"
#include "kernels/cpu/linalg/cpu_features.h"
#include "plan/cpu_rates.h"

namespace snug::plan {
namespace {

// CUDA's context, cuBLAS with its workspace and loaded kernels; as measured on recent drivers it is
// 0.4 to 0.6 GiB.
constexpr int64_t kContextBytes = 600 * kMiB;
constexpr double kHostBytesPerSecond = 60e9;

DeviceProfile profile_of(const config::Gpu& gpu) {
  return {.name = std::string(gpu.profile),
          .memory_bytes = static_cast<int64_t>(gpu.memory_gib * static_cast<double>(kGiB)),
          .context_bytes = kContextBytes,
          .flops_16bit = gpu.tflops_16bit * 1e12,
          .flops_32bit = gpu.tflops_32bit * 1e12,
          .bytes_per_second = gpu.gb_per_second * 1e9,
          .link_bytes_per_second = gpu.link_gb_per_second * 1e9,
          .host_bytes_per_second = kHostBytesPerSecond,
          .flash_attention = gpu.flash_attention};
}

std::string letters_and_digits(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)))
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

DeviceProfile this_cpu(int64_t budget_bytes) {
  const int64_t pages = ::sysconf(_SC_PHYS_PAGES);
  const int64_t all = pages * ::sysconf(_SC_PAGESIZE);
  const CpuRates rates = cpu_rates();
  return {.name = kernels::cpu::cpu_summary(),
          .kind = at::kCPU,
          .memory_bytes = budget_bytes > 0 ? budget_bytes : all,
          .host_bytes = all,
          .flops_16bit = rates.flops_16bit,
          .flops_32bit = rates.flops_32bit,
          .bytes_per_second = rates.copy_bytes_per_second,
          .link_bytes_per_second = rates.copy_bytes_per_second / 2,
          .host_bytes_per_second = rates.copy_bytes_per_second,
          .product_efficiency = 1};  // the rates are of products
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

// "a100" and "4090" mean those that contain it, a typing error the nearest.
std::string guesses(const std::string& name, const std::vector<std::string>& names) {
  const std::string wanted = letters_and_digits(name);
  std::vector<std::string> near;
  for (const std::string& candidate : names)
    if (!wanted.empty() && letters_and_digits(candidate).find(wanted) != std::string::npos)
      near.push_back(candidate);
  if (near.empty()) near.push_back(nearest_name(name, names));
  return near.front().empty() ? "" : fmt::format("; did you mean {}?", fmt::join(near, " or "));
}

[[noreturn]] void refuse(const std::string& name) {
  const std::vector<std::string> names = profile_names();
  throw UserError("device = {}: is neither one of {} nor the YAML file of a device's profile{}",
                  name, fmt::join(names, ", "), guesses(name, names));
}

}  // namespace

std::vector<std::string> profile_names() {
  std::vector<std::string> names = config::gpu_profile_names();
  names.insert(names.begin(), "cpu");
  return names;
}

DeviceProfile find_profile(const std::string& name, int64_t budget_bytes) {
  DeviceProfile profile;
  const std::string wanted = letters_and_digits(name);
  const std::span<const config::Gpu> gpus = config::gpus();
  const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const config::Gpu& gpu) {
    return !gpu.profile.empty() && letters_and_digits(gpu.profile) == wanted;
  });
  if (wanted == "cpu") return this_cpu(budget_bytes);
  if (found != gpus.end())
    profile = profile_of(*found);
  else if (std::filesystem::is_regular_file(name))
    profile = from_yaml(name);
  else
    refuse(name);
  if (budget_bytes == 0) return profile;
  if (budget_bytes <= profile.context_bytes)
    throw UserError(
        "memory_budget = {}: driver and libraries take {} of {}, which leaves nothing; give more",
        format_bytes(budget_bytes), format_bytes(profile.context_bytes), profile.name);
  profile.memory_bytes = budget_bytes;
  return profile;
}

DeviceProfile profile_of_gpu(std::string_view cuda_name) {
  const config::Gpu* gpu = config::gpu_by_cuda_name(cuda_name);
  if (gpu != nullptr) return profile_of(*gpu);
  warn("{} is not in the table of GPUs: times are those of an A100", cuda_name);
  return find_profile("a100-80", 0);
}

}  // namespace snug::plan
