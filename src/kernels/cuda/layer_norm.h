// LayerNorm on the device; formulas and arguments in kernels/cpu/layer_norm.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/layer_norm.h"
#include "kernels/cuda/launch.h"

namespace snug::kernels::cuda {

void layer_norm_forward(const cpu::LayerNormForward& args, cudaStream_t stream);

// Scratch for the shares of dweight and dbias; 0 where neither is wanted.
int64_t layer_norm_backward_workspace_bytes(const cpu::LayerNormBackward& args);
void layer_norm_backward(const cpu::LayerNormBackward& args, void* workspace, cudaStream_t stream);

}  // namespace snug::kernels::cuda
