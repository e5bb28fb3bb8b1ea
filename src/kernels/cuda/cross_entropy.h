// Cross-entropy on the device; formulas and arguments in kernels/cpu/cross_entropy.h. Targets lie
// in device memory; one outside the vocabulary gives a loss of NaN.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/cross_entropy.h"
#include "kernels/cuda/launch.h"

namespace snug::kernels::cuda {

// On the device, added to: set to 0 before a step's first call, read back at the log interval.
struct CrossEntropyTotals {
  double loss_sum;
  int64_t count;
};

int64_t cross_entropy_workspace_bytes(const cpu::CrossEntropy& args);
void cross_entropy(const cpu::CrossEntropy& args, CrossEntropyTotals* totals, void* workspace,
                   cudaStream_t stream);

}  // namespace snug::kernels::cuda
