// The one check that all launches go through.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/launch.h"

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "core/kernels/cuda/launch_errors.h"

namespace snug::kernels::cuda {
namespace {

static_assert(cudaSuccess == kCudaSuccess && cudaErrorMemoryAllocation == kCudaOutOfMemory &&
              cudaErrorNoKernelImageForDevice == kCudaNoKernelImage &&
              cudaErrorUnsupportedPtxVersion == kCudaUnsupportedPtx &&
              cudaErrorIllegalAddress == 700 && cudaErrorLaunchFailure == 719);

constexpr int64_t kMostGridHeight = 65535;

thread_local const char* being_launched = "";

bool launches_block() {
  static const char* value = std::getenv("CUDA_LAUNCH_BLOCKING");
  return value != nullptr && std::string(value) != "0";
}

[[noreturn]] void fail(LaunchFault fault, const char* kernel, cudaError_t error) {
  const std::string words =
      fmt::format("{} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
  const std::string text = launch_fault_text(fault, kernel, error, words);
  if (error == cudaErrorMemoryAllocation) throw OutOfMemory(text);
  throw InternalError(text);
}

}  // namespace

void check_before_launch(const char* kernel) {
  const cudaError_t before = cudaPeekAtLastError();
  if (before == cudaSuccess) return;
  cudaGetLastError();  // reported once
  fail(launch_fault(before, before, launches_block()), kernel, before);
}

void prepare_launch(const char* kernel, const Grid& grid, int64_t threads, int64_t shared_bytes) {
  being_launched = kernel;
  SNUG_CHECK(grid.x >= 1 && grid.x <= INT32_MAX && grid.y >= 1 && grid.y <= kMostGridHeight,
             "CUDA kernel {} on a grid of {} by {} blocks; a grid has 1 to {} by 1 to {}", kernel,
             grid.x, grid.y, INT32_MAX, kMostGridHeight);
  SNUG_CHECK(threads >= 1 && threads <= kMostThreads,
             "CUDA kernel {} with {} threads a block; a block has 1 to {}", kernel, threads,
             kMostThreads);
  if (shared_bytes <= kDefaultSharedBytes) return;
  int device = 0, most = 0;
  const bool known =
      cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess;
  SNUG_CHECK(!known || shared_bytes <= most,
             "CUDA kernel {} with {} bytes of shared memory a block; this GPU has at most {}",
             kernel, shared_bytes, most);
}

const char* kernel_being_launched() { return being_launched; }

void check_launch(const char* kernel) {
  const cudaError_t after = cudaGetLastError();
  if (after == cudaSuccess) return;
  fail(launch_fault(cudaSuccess, after, launches_block()), kernel, after);
}

}  // namespace snug::kernels::cuda
