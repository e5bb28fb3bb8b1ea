// Of NVIDIA's GPUs: driver, CUDA, each GPU, the ways between them, NCCL.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "watch/doctor/findings.h"

namespace snug::doctor {

// The oldest CUDA that a driver must know for a build with CUDA, in CUDA's way of writing.
inline constexpr int kWantedCuda = 13000;
// The oldest compute capability that CUDA 13 compiles for, and libtorch's kernels are made
// for: 7.5, Turing.
inline constexpr int kOldestCapability = 75;

std::vector<Finding> gpu_findings(const Facts& facts);

}  // namespace snug::doctor
