// What optimizers launch on the device; arguments are in core/kernels/optimizers.h.
//
// A list of tensors takes one launch, usually: those of equal types should follow each other, since
// each change starts a new one. grad_scale: optional, on the device, multiplied with
// options.grad_scale, so that a clipping factor needs no way over the host. Where it is not finite
// the step is left out (loss scaling).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "core/kernels/cuda/launch.h"
#include "core/kernels/optimizers.h"

namespace snug::kernels::cuda {

void adamw_step(std::span<const AdamWTensor> tensors, const AdamWOptions& options,
                const float* grad_scale, cudaStream_t stream);

void adamw_8bit_step(std::span<const AdamW8bitTensor> tensors, const AdamWOptions& options,
                     const float* grad_scale, cudaStream_t stream);

// Of those in optimizers/all.def.
template <class Formula>
void element_step(std::span<const ElementTensor<Formula::kStates>> tensors,
                  const ElementOptions& options, const float* grad_scale, cudaStream_t stream);
#define SNUG_ELEMENT_WISE(Formula)                                             \
  template <>                                                                  \
  void element_step<Formula>(std::span<const ElementTensor<Formula::kStates>>, \
                             const ElementOptions&, const float*, cudaStream_t);
#include "core/kernels/optimizers/all.def"
#undef SNUG_ELEMENT_WISE

// One tensor. The norms that a step needs stay on the device: nothing waits for it. `workspace`:
// adafactor_device_sums_bytes(rows) and adafactor_workspace_bytes(rows, cols), aligned
// to 8.
void adafactor_step(const AdafactorTensor& tensor, const AdafactorOptions& options, void* workspace,
                    cudaStream_t stream);

// The gradients' norm, and the factor that clips them, without a way over the host.
int64_t sum_of_squares_workspace_bytes(std::span<const TensorView> tensors);

// *sum (on the device) becomes the sum of squares; infinite or NaN where an element is.
void sum_of_squares(std::span<const TensorView> tensors, double* sum, void* workspace,
                    cudaStream_t stream);

// *factor = unscale * min(1, max_norm / (unscale * sqrt(*sum) + 1e-6)), as torch clips; NaN where
// *sum is not finite, so that the optimizer leaves the step out. max_norm <= 0: no clipping.
void clip_factor(const double* sum, double unscale, double max_norm, float* factor,
                 cudaStream_t stream);

}  // namespace snug::kernels::cuda
