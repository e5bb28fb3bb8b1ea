// The gradients' norm on the device, and the factor that clips them, without a way over the host;
// see kernels/cpu/global_norm.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/cpu/global_norm.h"
#include "kernels/cuda/launch.h"

namespace snug::kernels::cuda {

int64_t sum_of_squares_workspace_bytes(std::span<const cpu::TensorView> tensors);

// *sum (on the device) becomes the sum of squares; infinite or NaN where an element is.
void sum_of_squares(std::span<const cpu::TensorView> tensors, double* sum, void* workspace,
                    cudaStream_t stream);

// *factor = unscale * min(1, max_norm / (unscale * sqrt(*sum) + 1e-6)), as torch clips; NaN where
// *sum is not finite, so that the optimizer leaves the step out. max_norm <= 0: no clipping.
void clip_factor(const double* sum, double unscale, double max_norm, float* factor,
                 cudaStream_t stream);

}  // namespace snug::kernels::cuda
