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

// The two sweeps over a part of the vocabulary. Sums lie in device memory; the logits are read
// again by the second, so that no scratch goes between them. Workspace as above.
void cross_entropy_part_sums(const cpu::CrossEntropy& args, cpu::CrossEntropyPartSums* sums,
                             cudaStream_t stream);
void cross_entropy_of_parts(const cpu::CrossEntropy& args, const cpu::CrossEntropyPartSums* sums,
                            int64_t num_parts, CrossEntropyTotals* totals, void* workspace,
                            cudaStream_t stream);

}  // namespace snug::kernels::cuda
