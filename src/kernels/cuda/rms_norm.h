// RMSNorm on the device; formulas and arguments in kernels/cpu/rms_norm.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/rms_norm.h"
#include "kernels/cuda/launch.h"

namespace snug::kernels::cuda {

void rms_norm_forward(const cpu::RmsNormForward& args, cudaStream_t stream);

// Scratch for the shares of dweight; 0 where args.dweight is null.
int64_t rms_norm_backward_workspace_bytes(const cpu::RmsNormBackward& args);
void rms_norm_backward(const cpu::RmsNormBackward& args, void* workspace, cudaStream_t stream);

}  // namespace snug::kernels::cuda
