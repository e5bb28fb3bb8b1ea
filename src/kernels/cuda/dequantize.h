// Quantized weights to numbers on the device; formats in kernels/cpu/linalg/quantized_matrix.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/quantized.h"
#include "kernels/cuda/launch.h"

namespace snug::kernels::cuda {

// Elements [begin, begin + count) of the weight, row by row; see DequantizeOnDevice.
void dequantize(const cpu::DequantizeOnDevice& args, cudaStream_t stream);

}  // namespace snug::kernels::cuda
