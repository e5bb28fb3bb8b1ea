// AdamW with 8-bit moments over a list of tensors on the device; formats, formulas and arguments in
// kernels/cpu/adamw_8bit.h, grad_scale as in adamw.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/cpu/adamw_8bit.h"
#include "kernels/cuda/launch.h"

namespace snug::kernels::cuda {

void adamw_8bit_step(std::span<const cpu::AdamW8bitTensor> tensors,
                     const cpu::AdamWOptions& options, const float* grad_scale,
                     cudaStream_t stream);

}  // namespace snug::kernels::cuda
