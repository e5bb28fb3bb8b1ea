// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda_device.h"

#include <ATen/Context.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <fmt/format.h>

#include <algorithm>

#include "base/trace.h"
#include "core/memory/ledger.h"
#include "core/ops/device/cuda.h"

namespace snug::engine::cuda {
namespace {

cudaError_t count_devices(int& count) {
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    count = 0;
    cudaGetLastError();  // clears the error, or the next call would report it
  }
  return error;
}

const cudaDeviceProp& properties() {
  static const cudaDeviceProp first = [] {
    cudaDeviceProp found{};
    C10_CUDA_CHECK(cudaGetDeviceProperties(&found, 0));
    return found;
  }();
  return first;
}

}  // namespace

bool is_built() { return true; }

int count() {
  int found = 0;
  count_devices(found);
  return found;
}

// CUDA reports the same error for a missing driver and one that is too old.
std::string why_none() {
  int found = 0;
  const cudaError_t error = count_devices(found);
  if (error == cudaErrorNoDevice || error == cudaSuccess) return "the NVIDIA driver reports none";
  if (error != cudaErrorInsufficientDriver) return cudaGetErrorString(error);
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (driver == 0) return "there is no NVIDIA driver here";
  return fmt::format("the NVIDIA driver supports CUDA up to {}.{}, and this program needs {}.{}",
                     driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                     CUDART_VERSION % 1000 / 10);
}

std::string name() { return properties().name; }
int64_t total_bytes() { return static_cast<int64_t>(properties().totalGlobalMem); }

int64_t free_bytes() {
  size_t free = 0;
  size_t total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free);
}

int64_t driver_bytes() {
  // Memory of other programs on the GPU looks the same; the driver itself never takes this much.
  constexpr int64_t kMost = int64_t{1} << 30;
  size_t free = 0;
  size_t total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const int64_t used = static_cast<int64_t>(total - free) - memory::cuda_reserved();
  return std::clamp<int64_t>(used, 0, kMost);
}

void prepare(bool own_stream) {
  if (own_stream) ops::cuda::use_own_stream();
  at::globalContext().setAllowBF16ReductionCuBLAS(/*allow_reduced_precision=*/false);
  at::globalContext().setAllowFP16ReductionCuBLAS(/*allow_reduced_precision=*/false);
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor small = at::zeros({16, 16}, options);
  at::mm(small, small);
  trace::set_ranges(
      {.begin = [](const char* name) { nvtxRangePushA(name); }, .end = [] { nvtxRangePop(); }});
}

}  // namespace snug::engine::cuda
