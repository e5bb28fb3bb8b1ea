// Adafactor of one tensor on the device; formulas and arguments in kernels/cpu/adafactor.h. The
// norms that a step needs stay on the device: nothing waits for it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/adafactor.h"
#include "kernels/cuda/launch.h"

namespace snug::kernels::cuda {

// `workspace`: cpu::adafactor_device_sums_bytes(rows) and cpu::adafactor_workspace_bytes(rows,
// cols), aligned to 8.
void adafactor_step(const cpu::AdafactorTensor& tensor, const cpu::AdafactorOptions& options,
                    void* workspace, cudaStream_t stream);

}  // namespace snug::kernels::cuda
