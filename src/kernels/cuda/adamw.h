// AdamW over a list of tensors on the device, usually in one launch; formulas and arguments in
// kernels/cpu/adamw.h. Tensors of equal types should follow each other: each change starts a new
// launch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/cpu/adamw.h"
#include "kernels/cuda/launch.h"

namespace snug::kernels::cuda {

// grad_scale: optional, on the device, multiplied with options.grad_scale, so that a clipping
// factor needs no way over the host. Where it is not finite the step is left out (loss scaling).
void adamw_step(std::span<const cpu::AdamWTensor> tensors, const cpu::AdamWOptions& options,
                const float* grad_scale, cudaStream_t stream);

}  // namespace snug::kernels::cuda
