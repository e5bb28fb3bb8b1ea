// The one way to launch a kernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "core/kernels/cuda/launch.h"

namespace snug::kernels::cuda {

// Queues the kernel; throws where the device would refuse it or CUDA does. `name`: the operator's,
// and after a slash the kernel's where it has several.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), const Grid& grid, int64_t threads,
            int64_t shared_bytes, cudaStream_t stream, Arguments&&... arguments) {
  prepare_launch(name, grid, threads, shared_bytes);
  if (shared_bytes > kDefaultSharedBytes)
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(shared_bytes));
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), 1);
  config.blockDim = dim3(static_cast<unsigned>(threads), 1, 1);
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
  check_launch(name);
}

}  // namespace snug::kernels::cuda
