// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cuda/launch_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace snug::kernels::cuda {
namespace {

// ECC, NVLink, a contained fault, illegal address, time-out, assert, stack, illegal instruction,
// misaligned address, address space, program counter, any other exception, tensor memory, a device
// outside.
constexpr int kSticky[] = {214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 911};

const char* hint(int error) {
  switch (error) {
    case kCudaOutOfMemory:
      return "; CUDA loads the code of a kernel when it first runs, into memory that no budget "
             "counts: leave it some with --memory_budget";
    case kCudaNoKernelImage:
    case kCudaUnsupportedPtx:
      return "; this program has no code for this GPU: see snug doctor";
    default:
      return "";
  }
}

}  // namespace

bool is_sticky(int error) {
  return std::find(std::begin(kSticky), std::end(kSticky), error) != std::end(kSticky);
}

LaunchFault launch_fault(int before, int after, bool launch_blocks) {
  if (before != kCudaSuccess)
    return is_sticky(before) ? LaunchFault::EarlierKernel : LaunchFault::EarlierCall;
  if (after == kCudaSuccess) return LaunchFault::None;
  if (!is_sticky(after)) return LaunchFault::Refused;
  return launch_blocks ? LaunchFault::ThisKernel : LaunchFault::EarlierKernel;
}

std::string launch_fault_text(LaunchFault fault, const std::string& kernel, int error,
                              const std::string& words) {
  switch (fault) {
    case LaunchFault::None:
      return {};
    case LaunchFault::EarlierKernel:
      return fmt::format(
          "a CUDA kernel that was launched before {} failed: {}; CUDA reports this late. To see "
          "which "
          "one it was, run again with CUDA_LAUNCH_BLOCKING=1 (slower), or under compute-sanitizer",
          kernel, words);
    case LaunchFault::EarlierCall:
      return fmt::format("a CUDA call before kernel {} was refused, and nobody noticed: {}", kernel,
                         words);
    case LaunchFault::ThisKernel:
      return fmt::format("CUDA kernel {} failed: {}", kernel, words);
    case LaunchFault::Refused:
      return fmt::format("CUDA kernel {} was not launched: {}{}", kernel, words, hint(error));
  }
  return {};
}

}  // namespace snug::kernels::cuda
