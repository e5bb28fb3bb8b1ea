// Dropout on the device, with the mask that kernels/cpu/dropout.h draws.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/dropout.h"
#include "kernels/cuda/launch.h"

namespace snug::kernels::cuda {

void dropout(const cpu::Dropout& args, cudaStream_t stream);

}  // namespace snug::kernels::cuda
