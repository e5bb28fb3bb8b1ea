// The one check that all launches go through.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.h"

#include "base/error.h"

namespace snug::kernels::cuda {

void check_launch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  throw InternalError(fmt::format("CUDA kernel {} was not launched: {} ({})", kernel,
                                  cudaGetErrorString(error), cudaGetErrorName(error)));
}

}  // namespace snug::kernels::cuda
