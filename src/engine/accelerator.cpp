// SPDX-License-Identifier: Apache-2.0
#include "engine/accelerator.h"

#include <ATen/Context.h>

#include "base/bytes.h"
#include "base/error.h"
#include "core/kernels/cpu/linalg/cpu_features.h"
#include "core/ops/device/device.h"
#include "engine/cuda_device.h"
#include "recipe/gpus.h"

namespace snug::engine {
namespace {

[[noreturn]] void refuse_cuda() {
  if (!cuda::is_built())
    throw UserError(
        "--accelerator cuda: this build has no CUDA; on a machine with an NVIDIA GPU run "
        "scripts/build again (or scripts/build --cuda on any machine), or choose --accelerator "
        "cpu");
  throw UserError(
      "--accelerator cuda: no NVIDIA GPU is visible ({}); check that nvidia-smi lists one and that "
      "CUDA_VISIBLE_DEVICES does not hide it, or choose --accelerator cpu",
      cuda::why_none());
}

}  // namespace

at::Device open_device(const recipe::Word<recipe::Accelerator>& accelerator) {
  const recipe::Accelerator wanted = accelerator.value();
  if (wanted == recipe::Accelerator::Cpu) return at::kCPU;
  if (cuda::count() == 0) {
    if (wanted == recipe::Accelerator::Cuda) refuse_cuda();
    return at::kCPU;
  }
  cuda::prepare();
  return {at::kCUDA, 0};
}

// For GPUs libtorch treats high and medium alike, so one switch is enough.
void choose_matmul_precision(at::Device device,
                             const recipe::Word<recipe::MatmulPrecision>& precision) {
  const bool all_bits = precision == recipe::MatmulPrecision::Highest;
  if (device.is_cuda()) at::globalContext().setAllowTF32CuBLAS(!all_bits);
}

std::string visible_gpu(int local_rank, const std::string& visible) {
  if (visible.empty()) return std::to_string(local_rank);
  std::vector<std::string> gpus(1);
  for (const char c : visible)
    if (c == ',')
      gpus.emplace_back();
    else
      gpus.back() += c;
  return gpus[static_cast<size_t>(local_rank) % gpus.size()];
}

std::string device_name(at::Device device) {
  if (!device.is_cuda()) return kernels::cpu::cpu_summary();
  return fmt::format("{}, {}", cuda::name(), format_bytes(cuda::total_bytes()));
}

int64_t free_bytes(at::Device device) { return device.is_cuda() ? cuda::free_bytes() : 0; }

int64_t driver_bytes(at::Device device) { return device.is_cuda() ? cuda::driver_bytes() : 0; }

double peak_flops_per_second(at::Device device, at::ScalarType compute) {
  if (!device.is_cuda()) return kernels::cpu::cpu_peak_flops_estimate(ops::to_scalar(compute));
  return gpu_peak_flops_per_second(cuda::name(), compute);
}

double gpu_peak_flops_per_second(std::string_view name, at::ScalarType compute) {
  const recipe::Gpu* gpu = recipe::gpu_by_cuda_name(name);
  if (gpu == nullptr) return 0;
  if (compute != at::kFloat) return gpu->tflops_16bit * 1e12;
  const bool tf32 = at::globalContext().allowTF32CuBLAS();
  return (tf32 ? gpu->tflops_tf32() : gpu->tflops_32bit) * 1e12;
}

}  // namespace snug::engine
