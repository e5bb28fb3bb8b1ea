// PiSSA (Meng et al. 2024): adapters start from the weights' largest singular values and vectors,
// which are subtracted from the frozen weights, so that the sum is still the base model:
//   W = U·S·Vᵀ,  B = U_r·√S_r/√s,  A = √S_r·V_rᵀ/√s,  frozen: W - s·B·A     with s the scaling
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "files/checkpoint/adapters/adapter.h"

namespace snug::engine {

struct LowRankStart {
  at::Tensor a;  // (r, in), float32
  at::Tensor b;  // (out, r)
};

// weight (out, in) float32 on the host. Deterministic. Singular values come from subspace iteration
// (Halko et al. 2011), accurate enough for an initial value.
LowRankStart pissa_start(const at::Tensor& weight, int64_t rank, double scaling);

// Converts the trained adapter to one for the original base model. It has twice the rank, since it
// also subtracts the initial values.
checkpoint::ModuleAdapter relative_to_base(const checkpoint::ModuleAdapter& trained,
                                           const LowRankStart& start);

}  // namespace snug::engine
