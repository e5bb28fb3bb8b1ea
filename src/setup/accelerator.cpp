// SPDX-License-Identifier: Apache-2.0
#include "setup/accelerator.h"

#include <array>
#include <cctype>

#include "base/bytes.h"
#include "base/error.h"
#include "kernels/cpu/linalg/cpu_features.h"
#include "ops/device.h"
#include "setup/cuda_device.h"

namespace snug::setup {
namespace {

struct GpuPeak {
  std::string_view name;  // as whole words in CUDA's name; the first that is found counts
  double tera_flops;
};

constexpr std::array kGpuPeaks = {
    GpuPeak{"B200", 2250},     GpuPeak{"GH200", 989},     GpuPeak{"H200", 989},
    GpuPeak{"H100 PCIe", 756}, GpuPeak{"H100 NVL", 835},  GpuPeak{"H100", 989},
    GpuPeak{"H20", 148},       GpuPeak{"A100", 312},      GpuPeak{"A800", 312},
    GpuPeak{"A40", 150},       GpuPeak{"A30", 165},       GpuPeak{"A10G", 70},
    GpuPeak{"A10", 125},       GpuPeak{"RTX A6000", 155}, GpuPeak{"L40S", 362},
    GpuPeak{"L40", 181},       GpuPeak{"L4", 121},        GpuPeak{"RTX 5090", 209},
    GpuPeak{"RTX 4090", 165},  GpuPeak{"RTX 3090", 71},   GpuPeak{"Tesla T4", 65},
};

// An A100 is no A1000, and a GH200 no H200.
bool has_words(std::string_view text, std::string_view words) {
  const size_t at = text.find(words);
  if (at == std::string_view::npos) return false;
  const auto is_border = [&](size_t i) {
    return i >= text.size() || std::isalnum(static_cast<unsigned char>(text[i])) == 0;
  };
  return (at == 0 || is_border(at - 1)) && is_border(at + words.size());
}

[[noreturn]] void refuse_cuda() {
  if (!cuda::is_built())
    throw UserError(
        "--accelerator cuda: this build has no CUDA; on a machine with an NVIDIA GPU run "
        "scripts/build again (or scripts/build --cuda anywhere), or choose --accelerator cpu");
  throw UserError(
      "--accelerator cuda: no NVIDIA GPU is visible ({}); see that nvidia-smi lists one and that "
      "CUDA_VISIBLE_DEVICES does not hide it, or choose --accelerator cpu",
      cuda::why_none());
}

}  // namespace

at::Device open_device(std::string_view accelerator) {
  if (accelerator == "cpu") return at::kCPU;
  if (accelerator != "auto" && accelerator != "cuda")
    throw UserError("accelerator = {}: is not one of auto, cpu, cuda", accelerator);
  if (cuda::count() == 0) {
    if (accelerator == "cuda") refuse_cuda();
    return at::kCPU;
  }
  cuda::prepare();
  return {at::kCUDA, 0};
}

std::string device_name(at::Device device) {
  if (!device.is_cuda()) return kernels::cpu::cpu_summary();
  return fmt::format("{}, {}", cuda::name(), format_bytes(cuda::total_bytes()));
}

int64_t device_memory_bytes(at::Device device) {
  return device.is_cuda() ? cuda::total_bytes() : 0;
}

double peak_flops_per_second(at::Device device, at::ScalarType compute) {
  if (!device.is_cuda()) return kernels::cpu::cpu_peak_flops_estimate(ops::to_scalar(compute));
  return compute == at::kFloat ? 0 : gpu_peak_flops_per_second(cuda::name());
}

double gpu_peak_flops_per_second(std::string_view name) {
  for (const GpuPeak& gpu : kGpuPeaks)
    if (has_words(name, gpu.name)) return gpu.tera_flops * 1e12;
  return 0;
}

}  // namespace snug::setup
