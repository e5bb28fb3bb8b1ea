// What the launches of kernels ask of CUDA, for tests that have kernels alone and no device.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include "core/kernels/cuda/launch.h"

namespace {

cudaError_t last_error = cudaSuccess;

}  // namespace

extern "C" {
cudaError_t simulated_refusal(cudaError_t error) { return last_error = error; }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorInvalidValue ? "cudaErrorInvalidValue" : "cudaError";
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorInvalidValue ? "invalid argument" : "unknown error";
}
cudaError_t cudaPeekAtLastError() { return last_error; }
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = static_cast<int>(snug::kernels::cuda::kMostSharedBytes);
  return cudaSuccess;
}
}
