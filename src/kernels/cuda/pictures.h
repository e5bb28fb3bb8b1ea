// Patches of pictures on the device; formula and arguments in kernels/cpu/pictures.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/pictures.h"
#include "kernels/cuda/launch.h"

namespace snug::kernels::cuda {

void image_patches(const cpu::ImagePatches& args, cudaStream_t stream);

}  // namespace snug::kernels::cuda
