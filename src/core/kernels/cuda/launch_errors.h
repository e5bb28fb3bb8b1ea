// Whose fault an error is that CUDA reports around a launch. A kernel's own failure is reported by
// whatever call comes after it, often another kernel's launch; such an error stays (it is sticky)
// and every later call gives it again. A refused launch, or a refused call that nobody checked, is
// reported once. Without CUDA's headers, so that a machine without a GPU tests it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace snug::kernels::cuda {

// Values of cudaError_t; launch.cpp compares them with CUDA's.
inline constexpr int kCudaSuccess = 0, kCudaOutOfMemory = 2, kCudaNoKernelImage = 209,
                     kCudaUnsupportedPtx = 222;

// Errors of work that was under way, after which a process cannot use the device any more.
bool is_sticky(int error);

enum class LaunchFault {
  None,
  EarlierKernel,  // one that ran before failed
  EarlierCall,    // a call before was refused, and nobody looked
  ThisKernel,     // it ran, and failed
  Refused,        // it never ran
};

// `before` and `after`: CUDA's last error before and after the launch. With CUDA_LAUNCH_BLOCKING=1
// a launch waits for its kernel, so that an error after it is that kernel's.
LaunchFault launch_fault(int before, int after, bool launch_blocks);

// `kernel` is the one launched; `error` its code and `words` CUDA's for it.
std::string launch_fault_text(LaunchFault fault, const std::string& kernel, int error,
                              const std::string& words);

}  // namespace snug::kernels::cuda
