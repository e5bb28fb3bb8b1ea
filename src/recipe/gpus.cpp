// SPDX-License-Identifier: Apache-2.0
#include "recipe/gpus.h"

#include <array>
#include <cctype>

namespace snug::recipe {
namespace {

constexpr auto kVolta = Generation::Volta, kAmpere = Generation::Ampere, kAda = Generation::Ada,
               kHopper = Generation::Hopper, kBlackwell = Generation::Blackwell;

// The longer of two names that share words comes first.
constexpr std::array kGpus = {
    Gpu{"", "V100-SXM2", 31.7, 125, 15.7, 900, 12, kVolta, 150, 6.25},
    Gpu{"v100-16", "V100", 15.8, 112, 14, 900, 12, kVolta, 150, 6.25},
    Gpu{"v100-32", "V100", 31.7, 112, 14, 900, 12, kVolta, 150, 6.25},
    Gpu{"t4", "T4", 14.6, 65, 8.1, 320, 12, kVolta},
    Gpu{"a100-80", "A100", 79.2, 312, 19.5, 2039, 24, kAmpere, 300, 25},
    Gpu{"a100-40", "A100", 39.4, 312, 19.5, 1555, 24, kAmpere, 300, 25},
    Gpu{"", "A800", 79.2, 312, 19.5, 2039, 24, kAmpere, 200, 25},
    Gpu{"a10", "A10", 22.0, 125, 31.2, 600, 24, kAmpere},
    Gpu{"a10g", "A10G", 22.0, 70, 31.5, 600, 24, kAmpere},
    Gpu{"", "A30", 23.6, 165, 10.3, 933, 24, kAmpere},
    Gpu{"a40", "A40", 44.4, 150, 37.4, 696, 24, kAmpere},
    Gpu{"rtx-a6000", "RTX A6000", 47.5, 155, 38.7, 768, 24, kAmpere},
    Gpu{"rtx-3090", "RTX 3090", 23.6, 71, 35.6, 936, 24, kAmpere},
    Gpu{"rtx-4090", "RTX 4090", 23.6, 165, 82.6, 1008, 24, kAda},
    Gpu{"rtx-5090", "RTX 5090", 31.4, 209, 105, 1792, 50, kBlackwell},
    Gpu{"l4", "L4", 22.0, 121, 30.3, 300, 24, kAda},
    Gpu{"", "L40", 44.4, 181, 90.5, 864, 24, kAda},
    Gpu{"l40s", "L40S", 44.4, 362, 91.6, 864, 24, kAda},
    Gpu{"h100-pcie-80", "H100 PCIe", 79.1, 756, 51, 2039, 50, kHopper},
    Gpu{"h100-94", "H100 NVL", 93.1, 835, 60, 3900, 50, kHopper},
    Gpu{"h100-80", "H100", 79.1, 989, 67, 3350, 50, kHopper, 450, 50},
    Gpu{"", "H20", 95.0, 148, 44, 4000, 50, kHopper, 450, 50},
    Gpu{"", "GH200", 94.5, 989, 67, 4000, 400, kHopper, 450, 50},
    Gpu{"h200-141", "H200", 139.8, 989, 67, 4800, 50, kHopper, 450, 50},
    Gpu{"b200-180", "B200", 178.3, 2250, 75, 7700, 50, kBlackwell, 900, 50},
};

bool has_words(std::string_view text, std::string_view words) {
  const size_t at = text.find(words);
  if (at == std::string_view::npos) return false;
  const auto is_border = [&](size_t i) {
    return i >= text.size() || std::isalnum(static_cast<unsigned char>(text[i])) == 0;
  };
  return (at == 0 || is_border(at - 1)) && is_border(at + words.size());
}

}  // namespace

std::span<const Gpu> gpus() { return kGpus; }

const Gpu* gpu_by_cuda_name(std::string_view name) {
  for (const Gpu& gpu : kGpus)
    if (has_words(name, gpu.cuda_name)) return &gpu;
  return nullptr;
}

std::vector<std::string> gpu_profile_names() {
  std::vector<std::string> names;
  for (const Gpu& gpu : kGpus)
    if (!gpu.profile.empty()) names.emplace_back(gpu.profile);
  return names;
}

}  // namespace snug::recipe
