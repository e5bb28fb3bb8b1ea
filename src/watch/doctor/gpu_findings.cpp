// SPDX-License-Identifier: Apache-2.0
#include "watch/doctor/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/bytes.h"

namespace snug::doctor {
namespace {

constexpr const char* kInstallDriver =
    "scripts/provision --install, or: sudo apt-get install nvidia-driver-580-server and a reboot";

std::string version_text(int cuda) { return fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10); }

// "12.4" -> 12040
int version_number(const std::string& text) {
  char* end = nullptr;
  const long major = std::strtol(text.c_str(), &end, 10);
  const long minor = end != nullptr && *end == '.' ? std::strtol(end + 1, nullptr, 10) : 0;
  return static_cast<int>(1000 * major + 10 * minor);
}

// An unknown capability counts as new enough.
bool is_too_old(const machine::Gpu& gpu) {
  return gpu.compute_capability > 0 && gpu.compute_capability < kOldestCapability;
}

bool has_usable_gpu(const Facts& facts) {
  return std::ranges::any_of(facts.gpus.gpus, [](const auto& gpu) { return !is_too_old(gpu); });
}

// A machine without NVIDIA's devices needs no driver. In a container without any the bus is still
// the machine's, so what is missing may be no more than an option of docker run.
Finding no_driver(const Facts& facts) {
  Finding finding{.subject = "driver", .found = facts.gpus.why_not};
  if (facts.nvidia_devices == 0) {
    finding.found = "no NVIDIA GPU on the bus, and no driver: runs use the processor";
    return finding;
  }
  finding.level = facts.has_cuda ? Level::Missing : Level::Note;
  finding.found = fmt::format("{} NVIDIA GPU{} on the bus, but {}", facts.nvidia_devices,
                              facts.nvidia_devices == 1 ? "" : "s", facts.gpus.why_not);
  finding.why = "without the driver a GPU cannot be used";
  finding.mend = facts.in_container
                     ? std::string(
                           "docker run --gpus all …, with the NVIDIA Container Toolkit on "
                           "the host (scripts/provision)")
                     : kInstallDriver;
  return finding;
}

Finding driver(const Facts& facts) {
  const machine::Gpus& gpus = facts.gpus;
  if (!gpus.has_library) return no_driver(facts);
  if (gpus.driver_version.empty())
    return {.level = facts.has_cuda ? Level::Missing : Level::Note,
            .subject = "driver",
            .found = gpus.why_not,
            .why = "without the driver a GPU cannot be used",
            .mend =
                "after an update of the driver: sudo reboot; otherwise: sudo dmesg | grep -i "
                "nvrm"};
  Finding finding{
      .subject = "driver",
      .found = fmt::format("{}, CUDA up to {}", gpus.driver_version, gpus.cuda_version)};
  const int wanted = facts.cuda_runtime.value_or(kWantedCuda);
  // Within one major version an older driver runs newer libraries.
  if (version_number(gpus.cuda_version) / 1000 >= wanted / 1000) return finding;
  finding.level = facts.has_cuda ? Level::Missing : Level::Note;
  finding.why = fmt::format("snug is built with CUDA {}, which needs driver 580 or newer",
                            version_text(wanted));
  finding.mend = facts.in_container ? "on the host: scripts/provision --install" : kInstallDriver;
  return finding;
}

Finding cuda(const Facts& facts) {
  Finding finding{.subject = "CUDA"};
  if (!facts.has_cuda) {
    finding.level = Level::Note;
    finding.found = "this build of snug does not have it";
    finding.why = has_usable_gpu(facts) ? "runs use the processor, although there is a GPU"
                                        : "runs use the processor, as they must here";
    finding.mend = has_usable_gpu(facts)
                       ? "scripts/build --cuda"
                       : "where there is a newer NVIDIA GPU: scripts/build --cuda";
    return finding;
  }
  finding.found = facts.cuda_runtime ? version_text(*facts.cuda_runtime) : "version not known";
  finding.found += facts.visible_gpus == 0 ? fmt::format(", no GPU: {}", facts.why_no_gpu)
                                           : fmt::format(", {} GPU{} visible", facts.visible_gpus,
                                                         facts.visible_gpus == 1 ? "" : "s");
  if (!facts.gpus.gpus.empty() && facts.visible_gpus == 0) {
    if (driver(facts).level != Level::Ok) return finding;  // which says what to do
    finding.level = Level::Missing;
    finding.why = fmt::format("the driver shows {}, but runs use the processor",
                              facts.gpus.gpus.size() == 1 ? "one" : "some");
    finding.mend = facts.visible_devices.empty() ? "nvidia-smi; then sudo reboot"
                                                 : "unset CUDA_VISIBLE_DEVICES";
  } else if (!facts.visible_devices.empty()) {
    finding.found += fmt::format(" (CUDA_VISIBLE_DEVICES={})", facts.visible_devices);
  }
  return finding;
}

// CUDA and the driver write the same place with more or fewer zeros before it: "0000:01:00.0",
// "00000000:01:00.0".
bool is_same_place(std::string a, std::string b) {
  for (std::string* id : {&a, &b}) {
    std::ranges::transform(*id, id->begin(), [](unsigned char c) { return std::tolower(c); });
    id->erase(0, std::min(id->find_first_not_of('0'), id->size()));
  }
  return a == b;
}

// The driver shows all GPUs, CUDA those that the environment leaves it.
bool is_hidden(const machine::Gpu& gpu, const Facts& facts) {
  if (!facts.has_cuda || gpu.bus_id.empty()) return false;
  if (facts.visible_gpus > 0 && facts.visible_bus_ids.empty()) return false;  // not known
  return std::ranges::none_of(facts.visible_bus_ids,
                              [&](const std::string& id) { return is_same_place(id, gpu.bus_id); });
}

// There is no kernel for it, neither of libtorch nor of snug, and no way to compile one.
void refuse_old(const machine::Gpu& gpu, const Facts& facts, Finding& finding) {
  finding.level = Level::Missing;
  finding.found += fmt::format(", compute capability {}.{}", gpu.compute_capability / 10,
                               gpu.compute_capability % 10);
  finding.why = fmt::format(
      "CUDA 13 does not support GPUs before compute capability {}.{}: every kernel would fail",
      kOldestCapability / 10, kOldestCapability % 10);
  const auto other = std::ranges::find_if(facts.gpus.gpus, [&](const machine::Gpu& candidate) {
    return !is_too_old(candidate) && !candidate.uuid.empty();
  });
  finding.mend = other != facts.gpus.gpus.end()
                     ? fmt::format("use GPU {}: CUDA_VISIBLE_DEVICES={}", other->index, other->uuid)
                     : "--accelerator cpu; or a newer GPU: T4, RTX 20, A100 or later";
}

Finding gpu(const machine::Gpu& gpu, const Facts& facts) {
  Finding finding{.subject = fmt::format("GPU {}", gpu.index),
                  .found = fmt::format("{}, {} free of {}", gpu.name,
                                       format_bytes(gpu.memory_total - gpu.memory_used),
                                       format_bytes(gpu.memory_total))};
  if (!facts.has_cuda || is_hidden(gpu, facts)) {
    finding.found += facts.has_cuda ? ", hidden from this program" : ", not used by this build";
  } else if (is_too_old(gpu)) {
    refuse_old(gpu, facts, finding);
  } else if (gpu.mig) {
    finding.level = Level::Note;
    finding.found += ", divided (MIG)";
    finding.why = "a run gets one MIG instance, with the memory of that instance";
    finding.mend = "nvidia-smi -L lists the instances: CUDA_VISIBLE_DEVICES=MIG-…";
  } else if (gpu.memory_total > 0 && gpu.memory_used > gpu.memory_total / 10) {
    finding.level = Level::Note;
    finding.why =
        "another program uses memory there, which a plan for the whole GPU does not count";
    finding.mend = fmt::format("nvidia-smi shows which; or --memory_budget {}MiB",
                               (gpu.memory_total - gpu.memory_used) * 95 / 100 / kMiB);
  }
  return finding;
}

// One line for all pairs, by the slowest way.
Finding topology(const Facts& facts) {
  size_t pairs = 0, by_nvlink = 0;
  int fewest_lanes = 0;
  std::string other;
  for (const machine::Gpu& gpu : facts.gpus.gpus) {
    for (const machine::GpuLink& link : gpu.links) {
      ++pairs;
      if (link.kind != "NVLink") {
        other = link.kind;
        continue;
      }
      ++by_nvlink;
      fewest_lanes = fewest_lanes == 0 ? link.lanes : std::min(fewest_lanes, link.lanes);
    }
  }
  Finding finding{.subject = "between GPUs"};
  if (pairs > 0 && by_nvlink == pairs) {
    finding.found = fmt::format("NVLink, {} links or more each way", fewest_lanes);
    return finding;
  }
  finding.level = Level::Note;
  finding.found = pairs == 0      ? std::string("not known")
                  : by_nvlink > 0 ? fmt::format("NVLink between some, else {}", other)
                                  : other;
  finding.why =
      "gradients and shards are sent over it every step; PCIe has a tenth of NVLink's bandwidth";
  finding.mend =
      "measure it: snug bench collectives --devices 2; shard only among GPUs connected by NVLink";
  return finding;
}

// 22703 is 2.27.3
Finding nccl(const Facts& facts) {
  if (!facts.has_cuda) return {.subject = "NCCL", .found = "needs a build with CUDA"};
  if (facts.nccl)
    return {.subject = "NCCL",
            .found = fmt::format("{}.{}.{}", *facts.nccl / 10000, *facts.nccl % 10000 / 100,
                                 *facts.nccl % 100)};
  return {.level = facts.gpus.gpus.size() > 1 ? Level::Missing : Level::Note,
          .subject = "NCCL",
          .found = "the library does not load",
          .why = "GPUs exchange gradients with it",
          .mend = "scripts/build --cuda fetches it with libtorch"};
}

}  // namespace

std::vector<Finding> gpu_findings(const Facts& facts) {
  std::vector<Finding> all{driver(facts), cuda(facts)};
  for (const machine::Gpu& one : facts.gpus.gpus) all.push_back(gpu(one, facts));
  if (facts.gpus.gpus.size() > 1) all.push_back(topology(facts));
  all.push_back(nccl(facts));
  return all;
}

}  // namespace snug::doctor
