// Lion over a list of tensors on the device; formulas and arguments in kernels/cpu/lion.h,
// grad_scale as in adamw.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/cpu/lion.h"
#include "kernels/cuda/launch.h"

namespace snug::kernels::cuda {

void lion_step(std::span<const cpu::LionTensor> tensors, const cpu::LionOptions& options,
               const float* grad_scale, cudaStream_t stream);

}  // namespace snug::kernels::cuda
