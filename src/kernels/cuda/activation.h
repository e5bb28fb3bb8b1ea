// ReLU, SiLU and GELU, plain and gated, on the device; formulas and arguments in
// kernels/cpu/activation.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/activation.h"
#include "kernels/cuda/launch.h"

namespace snug::kernels::cuda {

void activation_forward(const cpu::ActivationForward& args, cudaStream_t stream);
void activation_backward(const cpu::ActivationBackward& args, cudaStream_t stream);
void gated_forward(const cpu::GatedForward& args, cudaStream_t stream);
void gated_backward(const cpu::GatedBackward& args, cudaStream_t stream);

}  // namespace snug::kernels::cuda
