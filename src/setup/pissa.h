// PiSSA (Meng et al. 2024): adapters that start with the weights' largest singular values and
// vectors, which are taken out of the frozen weights, so that the sum is the base model still:
//   W = U·S·Vᵀ,  B = U_r·√S_r/√s,  A = √S_r·V_rᵀ/√s,  frozen: W - s·B·A     with s the scaling
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "checkpoint/adapter.h"

namespace snug::setup {

struct LowRankStart {
  at::Tensor a;  // (r, in), float32
  at::Tensor b;  // (out, r)
};

// weight (out, in) float32 on the host; the same result for the same weight. Singular values are
// found by subspace iteration (Halko et al. 2011), to the accuracy that a start needs.
LowRankStart pissa_start(const at::Tensor& weight, int64_t rank, double scaling);

// The trained adapter as one for the base model as it is on disk: twice the rank, since the
// starting values are subtracted again.
checkpoint::ModuleAdapter relative_to_base(const checkpoint::ModuleAdapter& trained,
                                           const LowRankStart& start);

}  // namespace snug::setup
