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

void check_launch(const char* kernel) {
  const cudaError_t after = cudaGetLastError();
  if (after == cudaSuccess) return;
  fail(launch_fault(cudaSuccess, after, launches_block()), kernel, after);
}

}  // namespace snug::kernels::cuda
