// SGD over a list of tensors on the device; formulas and arguments in kernels/cpu/sgd.h, grad_scale
// as in adamw.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/cpu/sgd.h"
#include "kernels/cuda/launch.h"

namespace snug::kernels::cuda {

void sgd_step(std::span<const cpu::SgdTensor> tensors, const cpu::SgdOptions& options,
              const float* grad_scale, cudaStream_t stream);

}  // namespace snug::kernels::cuda
