// SPDX-License-Identifier: Apache-2.0
#include "engine/host.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "core/dist/world.h"
#include "core/kernels/cpu/linalg/cpu_features.h"
#include "core/memory/disk_file.h"
#include "core/memory/ledger.h"
#include "core/ops/device/device.h"
#include "engine/cuda_device.h"
#include "recipe/gpus.h"
#include "watch/machine/machine.h"

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

at::Device open_device(const recipe::Word<recipe::Accelerator>& accelerator, bool own_stream) {
  const recipe::Accelerator wanted = accelerator.value();
  if (wanted == recipe::Accelerator::Cpu) return at::kCPU;
  if (cuda::count() == 0) {
    if (wanted == recipe::Accelerator::Cuda) refuse_cuda();
    return at::kCPU;
  }
  cuda::prepare(own_stream);
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

int64_t peak_resident_bytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * kKiB;
}

namespace {

// Before CUDA is asked for anything: "device 0" is then this process's own everywhere.
void see_own_gpu() {
  const dist::Position position = dist::position_in_environment();
  if (position.local_size == 1) return;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string own =
      engine::visible_gpu(position.local_rank, visible == nullptr ? "" : visible);
  ::setenv("CUDA_VISIBLE_DEVICES", own.c_str(), 1);
}

// Kernels are loaded into the device's memory when they first run, after this is asked. Estimated,
// with room for blocks that are mapped in larger pieces than they are asked for.
constexpr int64_t kLateKernelBytes = 256 * kMiB;

}  // namespace

MemoryLimits limits_of(const std::string& memory_budget, const GpuMemory& gpu) {
  const int64_t there = std::max<int64_t>(1, gpu.free + gpu.reserved - kLateKernelBytes);
  if (memory_budget.empty()) return {.budget_bytes = 0, .reserved_bytes = there};
  const int64_t budget = parse_bytes(memory_budget, "memory_budget") - gpu.driver;
  if (budget <= 0)
    throw UserError(
        "memory_budget = {}: the driver takes {} of the device, which leaves no memory for "
        "training; give more",
        memory_budget, format_bytes(gpu.driver));
  return {.budget_bytes = budget, .reserved_bytes = std::min(budget, there)};
}

void use_threads(int64_t wanted) {
  const int cores = machine::usable_cores();
  const int64_t most = std::max<int64_t>(64, int64_t{8} * cores);
  if (wanted > most)
    throw UserError("num_threads = {}: this process may use {} cores, and takes {} threads at most",
                    wanted, cores, most);
  if (wanted > 0)
    at::set_num_threads(static_cast<int>(wanted));
  else if (std::getenv("OMP_NUM_THREADS") == nullptr)  // libtorch knows no control groups
    at::set_num_threads(std::min(at::get_num_threads(), cores));
}

Host prepare_host(const std::string& memory_budget, int64_t num_threads,
                  const recipe::Word<recipe::Accelerator>& accelerator, bool own_stream) {
  see_own_gpu();
  memory::install_allocators();
  // Numbers below 1e-38 become zero: an early gradient is full of them in some layers, and each one
  // costs a processor a hundred times an ordinary product. Threads take this over from the one that
  // starts them.
  at::globalContext().setFlushDenormal(true);
  use_threads(num_threads);
  const int64_t budget = memory_budget.empty() ? 0 : parse_bytes(memory_budget, "memory_budget");
  const at::Device device = engine::open_device(accelerator, own_stream);
  memory::Ledger& ledger = memory::ledger_of(device.type());
  Host host{.device = device, .budget_bytes = budget};
  if (device.is_cuda()) {
    host.library_bytes = ledger.allocated();
    host.library_reserved = memory::cuda_reserved();
    const MemoryLimits limits = limits_of(memory_budget, {.free = engine::free_bytes(device),
                                                          .reserved = host.library_reserved,
                                                          .driver = engine::driver_bytes(device)});
    host.budget_bytes = limits.budget_bytes;
    host.reserved_limit = limits.reserved_bytes;
    memory::limit_cuda_reserved(limits.reserved_bytes);
  }
  ledger.set_budget(host.budget_bytes);
  return host;
}

void check_offload_folder(const recipe::Recipe& recipe) {
  std::optional<std::string> states = recipe.offload_folder();
  if (!states && recipe.fit && !recipe.fit_disk.empty()) states = recipe.fit_disk;
  const auto check = [](const memory::DiskUse& use, const std::optional<std::string>& folder) {
    if (folder && !memory::DiskFile::is_on_disk(use, *folder))
      warn(
          "{} = disk:{}: files there are kept in memory (tmpfs), so {} would stay in memory "
          "without "
          "being counted; give a folder on a disk, or {}",
          use.option, *folder, use.content, use.without);
  };
  check(memory::kStatesOnDisk, states);
  check(memory::kWeightsOnDisk, recipe.weight_folder());
}

}  // namespace snug::engine
