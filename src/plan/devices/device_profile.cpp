// SPDX-License-Identifier: Apache-2.0
#include "plan/devices/device_profile.h"

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "core/kernels/cpu/linalg/cpu_features.h"
#include "engine/strategy.h"
#include "plan/devices/measured_rates.h"
#include "recipe/gpus.h"
#include "watch/machine/machine.h"

namespace snug::plan {
namespace {

// A number in a profile's YAML file: its member and unit.
struct Number {
  enum class Range { AboveZero, ZeroOrMore, Share };

  const char* key;
  double DeviceProfile::*member;
  double unit = 1;
  Range range = Range::AboveZero;
};

constexpr double kTera = 1e12, kGiga = 1e9, kMicro = 1e-6;
constexpr Number kNumbers[] = {
    {"tflops_16bit", &DeviceProfile::flops_16bit, kTera},
    {"tflops_32bit", &DeviceProfile::flops_32bit, kTera},
    {"tflops_bf16", &DeviceProfile::flops_bf16, kTera, Number::Range::ZeroOrMore},
    {"tflops_tf32", &DeviceProfile::flops_tf32, kTera, Number::Range::ZeroOrMore},
    {"gb_per_second", &DeviceProfile::bytes_per_second, kGiga},
    {"link_gb_per_second", &DeviceProfile::link_bytes_per_second, kGiga},
    {"host_gb_per_second", &DeviceProfile::host_bytes_per_second, kGiga},
    {"disk_read_gb_per_second", &DeviceProfile::disk_read_bytes_per_second, kGiga},
    {"disk_write_gb_per_second", &DeviceProfile::disk_write_bytes_per_second, kGiga},
    {"product_efficiency", &DeviceProfile::product_efficiency, 1, Number::Range::Share},
    {"attention_efficiency", &DeviceProfile::attention_efficiency, 1, Number::Range::Share},
    {"memory_efficiency", &DeviceProfile::memory_efficiency, 1, Number::Range::Share},
    {"intra_node_gb_per_second", &DeviceProfile::intra_node_bytes_per_second, kGiga},
    {"inter_node_gb_per_second", &DeviceProfile::inter_node_bytes_per_second, kGiga},
    {"intra_node_microseconds", &DeviceProfile::intra_node_latency, kMicro,
     Number::Range::ZeroOrMore},
    {"inter_node_microseconds", &DeviceProfile::inter_node_latency, kMicro,
     Number::Range::ZeroOrMore},
    {"collective_efficiency", &DeviceProfile::collective_efficiency, 1, Number::Range::Share},
    {"network_efficiency", &DeviceProfile::network_efficiency, 1, Number::Range::Share},
};
constexpr const char* kTexts[] = {"name", "kind", "memory", "context", "host_memory"};

void check_keys(const YAML::Node& file, const std::string& path) {
  if (!file.IsMap() || !file["memory"])
    throw UserError("{}: the key memory is missing; write for example memory: 24GiB", path);
  std::vector<std::string> known(std::begin(kTexts), std::end(kTexts));
  for (const Number& number : kNumbers) known.emplace_back(number.key);
  for (const auto& entry : file) {
    const auto key = entry.first.as<std::string>();
    if (std::find(known.begin(), known.end(), key) == known.end())
      throw UserError("{}: {} is not a key of a device profile; the keys are {}", path, key,
                      fmt::join(known, ", "));
  }
}

void read_texts(const YAML::Node& file, const std::string& path, DeviceProfile& profile) {
  const auto bytes = [&](const char* key, int64_t otherwise) {
    return file[key] ? parse_bytes(file[key].as<std::string>(), path + ": " + key) : otherwise;
  };
  if (file["name"]) profile.name = file["name"].as<std::string>();
  const std::string kind = file["kind"] ? file["kind"].as<std::string>() : "cuda";
  if (kind != "cpu" && kind != "cuda")
    throw UserError("{}: kind = {}: must be cpu or cuda", path, kind);
  profile.kind = kind == "cpu" ? at::kCPU : at::kCUDA;
  profile.memory_bytes = bytes("memory", 0);
  profile.context_bytes =
      bytes("context", profile.kind == at::kCUDA ? profile.context_bytes : int64_t{0});
  profile.host_bytes = bytes("host_memory", profile.host_bytes);
}

void read_number(const YAML::Node& file, const std::string& path, const Number& number,
                 DeviceProfile& profile) {
  if (!file[number.key]) return;
  const double value = file[number.key].as<double>(NAN);
  const bool may_be_zero = number.range == Number::Range::ZeroOrMore;
  // No machine has rates beyond these, with which times would be no numbers.
  constexpr double kLeast = 1e-6, kMost = 1e9;
  if (!((may_be_zero && value == 0) || (value >= kLeast && value <= kMost)))
    throw UserError("{}: {} = {}: must be a number from {:g} to {:g}{}", path, number.key,
                    YAML::Dump(file[number.key]), kLeast, kMost, may_be_zero ? ", or 0" : "");
  if (number.range == Number::Range::Share && value > 1)
    throw UserError("{}: {} = {}: must be a share, at most 1", path, number.key, value);
  profile.*number.member = value * number.unit;
}

// Missing keys are as in `otherwise`; a missing link between devices is the one to the host. Throws
// UserError that names the file.
DeviceProfile read_profile(const std::string& path, DeviceProfile otherwise) {
  DeviceProfile profile = std::move(otherwise);
  profile.name = path;
  try {
    const YAML::Node file = YAML::LoadFile(path);
    check_keys(file, path);
    read_texts(file, path, profile);
    for (const Number& number : kNumbers) read_number(file, path, number, profile);
    if (!file["intra_node_gb_per_second"])
      profile.intra_node_bytes_per_second = profile.link_bytes_per_second;
  } catch (const YAML::Exception& error) {
    throw UserError("{}: {}", path, error.what());
  }
  if (profile.usable_bytes() <= 0)
    throw UserError("{}: context takes all of memory; give less context or more memory", path);
  return profile;
}

// CUDA's context, cuBLAS with its workspace and loaded kernels; as measured on recent drivers it is
// 0.4 to 0.6 GiB.
constexpr int64_t kContextBytes = 600 * kMiB;
constexpr double kHostBytesPerSecond = 60e9;
// If nothing is known of the disk: a SATA SSD.
constexpr double kSataBytesPerSecond = 0.5e9;
// A hop of a collective; rounded from what NCCL's own choice of algorithms assumes.
constexpr double kNvlinkLatency = 3e-6, kPcieLatency = 6e-6, kNetworkLatency = 14e-6;
// A fast network of machines without GPUs: 25 Gbit/s, and what MPI makes of it.
constexpr double kCpuNetwork = 3.125e9, kSharedMemoryLatency = 2e-6, kCpuNetworkLatency = 30e-6;

// Host memory of usual GPU machines, per GPU and at least.
constexpr int64_t kHostTimesDevice = 4, kLeastHost = 64 * kGiB;

DeviceProfile profile_of(const recipe::Gpu& gpu) {
  const bool has_nvlink = gpu.nvlink_gb_per_second > 0;
  const Efficiency efficiency = efficiency_of(gpu.generation);
  return {.name = std::string(gpu.profile),
          .memory_bytes = static_cast<int64_t>(gpu.memory_gib * static_cast<double>(kGiB)),
          .context_bytes = kContextBytes,
          .flops_16bit = gpu.tflops_16bit * 1e12,
          .flops_32bit = gpu.tflops_32bit * 1e12,
          .flops_bf16 = gpu.flash_attention() ? 0 : gpu.tflops_32bit * 1e12,
          .flops_tf32 = gpu.tflops_tf32() * 1e12,
          .bytes_per_second = gpu.gb_per_second * 1e9,
          .link_bytes_per_second = gpu.link_gb_per_second * 1e9,
          .host_bytes_per_second = kHostBytesPerSecond,
          .product_efficiency = efficiency.products,
          .attention_efficiency = efficiency.attention,
          .memory_efficiency = efficiency.memory,
          .intra_node_bytes_per_second =
              1e9 * (has_nvlink ? gpu.nvlink_gb_per_second : gpu.link_gb_per_second),
          .inter_node_bytes_per_second = gpu.network_gb_per_second * 1e9,
          .intra_node_latency = has_nvlink ? kNvlinkLatency : kPcieLatency,
          .inter_node_latency = kNetworkLatency,
          .collective_efficiency =
              efficiency_of(has_nvlink ? Link::Nvlink : Link::Pcie, gpu.generation),
          .network_efficiency = efficiency_of(Link::Network, gpu.generation),
          .flash_attention = gpu.flash_attention()};
}

std::string letters_and_digits(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)))
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// The machine's memory, or the limit of this process.
int64_t this_memory() {
  const machine::Memory memory = machine::memory();
  return memory.limit ? std::min(memory.total, *memory.limit) : memory.total;
}

// The part of it that is available now.
int64_t this_free_memory() {
  const machine::Memory memory = machine::memory();
  const int64_t of_limit =
      memory.limit ? *memory.limit - memory.in_use.value_or(0) : memory.available;
  return std::max<int64_t>(0, std::min(memory.available, of_limit));
}

DeviceProfile this_cpu(int64_t budget_bytes) {
  const int64_t all = this_memory();
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
          .disk_read_bytes_per_second = kSataBytesPerSecond,
          .disk_write_bytes_per_second = kSataBytesPerSecond,
          // The rates are of products and copies.
          .product_efficiency = 1,
          .attention_efficiency = 1,
          .memory_efficiency = 1,
          .intra_node_bytes_per_second = rates.copy_bytes_per_second / 2,
          .inter_node_bytes_per_second = kCpuNetwork,
          .intra_node_latency = kSharedMemoryLatency,
          .inter_node_latency = kCpuNetworkLatency};
}

// The defaults for a profile from a file.
DeviceProfile some_gpu() {
  return {.context_bytes = kContextBytes,
          .flops_16bit = 100e12,
          .flops_32bit = 20e12,
          .bytes_per_second = 1000e9,
          .link_bytes_per_second = 24e9,
          .host_bytes_per_second = kHostBytesPerSecond,
          .inter_node_bytes_per_second = recipe::Gpu{}.network_gb_per_second * 1e9,
          .intra_node_latency = kPcieLatency,
          .inter_node_latency = kNetworkLatency};
}

// "a100" and "4090" mean those that contain it, a typing error the nearest.
std::string guesses(const std::string& name, const std::vector<std::string>& names) {
  const std::string wanted = letters_and_digits(name);
  std::vector<std::string> near;
  for (const std::string& candidate : names)
    if (!wanted.empty() && letters_and_digits(candidate).find(wanted) != std::string::npos)
      near.push_back(candidate);
  if (near.empty()) {
    std::vector<std::string> plain;  // a missing hyphen is no mistake
    for (const std::string& candidate : names) plain.push_back(letters_and_digits(candidate));
    const auto nearest = std::ranges::find(plain, nearest_name(wanted, plain));
    near.push_back(nearest == plain.end() ? ""
                                          : names[static_cast<size_t>(nearest - plain.begin())]);
  }
  return near.front().empty() ? "" : fmt::format("; did you mean {}?", fmt::join(near, " or "));
}

[[noreturn]] void refuse(const std::string& name) {
  const std::vector<std::string> names = profile_names();
  if (name.ends_with(".yaml") || name.ends_with(".yml") || name.find('/') != name.npos)
    throw UserError("device = {}: there is no such file", name);
  throw UserError("device = {}: must be one of {}, or a YAML file with a device profile{}", name,
                  fmt::join(names, ", "), guesses(name, names));
}

}  // namespace

std::vector<std::string> profile_names() {
  std::vector<std::string> names = recipe::gpu_profile_names();
  names.insert(names.begin(), "cpu");
  return names;
}

DeviceProfile find_profile(const std::string& name, int64_t budget_bytes) {
  DeviceProfile profile;
  const std::string wanted = letters_and_digits(name);
  const std::span<const recipe::Gpu> gpus = recipe::gpus();
  const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const recipe::Gpu& gpu) {
    return !gpu.profile.empty() && letters_and_digits(gpu.profile) == wanted;
  });
  if (wanted == "cpu") return this_cpu(budget_bytes);
  if (found != gpus.end())
    profile = profile_of(*found);
  else if (std::filesystem::is_regular_file(name))
    profile = read_profile(name, some_gpu());
  else
    refuse(name);
  if (profile.kind == at::kCUDA)
    profile.host_bytes_per_device = kHostTimesDevice * profile.memory_bytes;
  if (budget_bytes == 0) return profile;
  if (budget_bytes <= profile.context_bytes)
    throw UserError(
        "memory_budget = {}: driver and libraries take {} of {}, which leaves no memory for "
        "training; give more",
        format_bytes(budget_bytes), format_bytes(profile.context_bytes), profile.name);
  profile.memory_bytes = budget_bytes;
  return profile;
}

DeviceProfile with_host(DeviceProfile device, const recipe::Recipe& recipe, Machine where) {
  const bool is_here = where == Machine::Here;
  if (!recipe.host_memory.empty())
    device.host_bytes = parse_bytes(recipe.host_memory, "host_memory");
  else if (is_here)
    device.host_bytes = this_free_memory();
  if (device.host_bytes == 0 && device.host_bytes_per_device > 0)
    device.assumed_host_bytes =
        std::max(kLeastHost, engine::named_ranks_per_node(recipe) * device.host_bytes_per_device);
  std::optional<std::string> folder = recipe.disk_folder();
  if (!folder && recipe.fit && !recipe.fit_disk.empty()) folder = recipe.fit_disk;
  if (!is_here || !folder || !std::filesystem::is_directory(*folder)) return device;
  device.disk_bytes = machine::disk(*folder).free;
  if (const std::optional<DiskRates> rates = disk_rates(*folder)) {
    device.disk_read_bytes_per_second = rates->read_bytes_per_second;
    device.disk_write_bytes_per_second = rates->write_bytes_per_second;
  }
  return device;
}

DeviceProfile share_of(const DeviceProfile& device, int64_t ranks_per_machine) {
  DeviceProfile share = device;
  for (double* rate : {&share.disk_read_bytes_per_second, &share.disk_write_bytes_per_second})
    *rate /= static_cast<double>(std::max<int64_t>(1, ranks_per_machine));
  if (device.kind != at::kCPU || ranks_per_machine <= 1) return share;
  for (double* rate :
       {&share.flops_16bit, &share.flops_32bit, &share.flops_bf16, &share.flops_tf32,
        &share.bytes_per_second, &share.link_bytes_per_second, &share.host_bytes_per_second,
        &share.intra_node_bytes_per_second, &share.inter_node_bytes_per_second})
    *rate /= static_cast<double>(ranks_per_machine);
  return share;
}

Network network_of(const DeviceProfile& device, int64_t ranks_per_machine) {
  return {
      .bytes_per_second_within = device.collective_efficiency * device.intra_node_bytes_per_second,
      .bytes_per_second_between = device.network_efficiency * device.inter_node_bytes_per_second,
      .latency_within = device.intra_node_latency,
      .latency_between = device.inter_node_latency,
      .ranks_per_machine = ranks_per_machine};
}

DeviceProfile profile_of_gpu(std::string_view cuda_name) {
  const recipe::Gpu* gpu = recipe::gpu_by_cuda_name(cuda_name);
  if (gpu != nullptr) return profile_of(*gpu);
  warn("{} is not in the table of GPUs; times are estimated for an A100", cuda_name);
  return find_profile("a100-80", 0);
}

}  // namespace snug::plan
