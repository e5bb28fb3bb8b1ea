// Rotary embedding on the device; formulas and arguments in kernels/cpu/rope.h. Positions lie in
// device memory and are trusted to be inside the table.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/rope.h"
#include "kernels/cuda/launch.h"

namespace snug::kernels::cuda {

void rope_apply(const cpu::RopeApply& args, cudaStream_t stream);

}  // namespace snug::kernels::cuda
