// SPDX-License-Identifier: Apache-2.0
#include "plan/devices/profile_file.h"

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"

namespace snug::plan {
namespace {

// A number of the file: which member it is, and in what unit.
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
    {"intra_node_gb_per_second", &DeviceProfile::intra_node_bytes_per_second, kGiga},
    {"inter_node_gb_per_second", &DeviceProfile::inter_node_bytes_per_second, kGiga},
    {"intra_node_microseconds", &DeviceProfile::intra_node_latency, kMicro,
     Number::Range::ZeroOrMore},
    {"inter_node_microseconds", &DeviceProfile::inter_node_latency, kMicro,
     Number::Range::ZeroOrMore},
    {"collective_efficiency", &DeviceProfile::collective_efficiency, 1, Number::Range::Share},
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
  const auto value = file[number.key].as<double>();
  const bool may_be_zero = number.range == Number::Range::ZeroOrMore;
  if (!(may_be_zero ? value >= 0 : value > 0))
    throw UserError("{}: {} = {}: must be {}", path, number.key, value,
                    may_be_zero ? "0 or more" : "above 0");
  if (number.range == Number::Range::Share && value > 1)
    throw UserError("{}: {} = {}: must be a share, at most 1", path, number.key, value);
  profile.*number.member = value * number.unit;
}

}  // namespace

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

}  // namespace snug::plan
