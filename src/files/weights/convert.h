// Bulk conversion between number types. Several GB/s per core: uses AVX2 and F16C if the machine
// has them, with the same bits as plain C++. Inputs need no alignment.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "files/weights/dtype.h"

namespace snug::files {

// Round to nearest even; NaN stays NaN, overflow becomes infinity.
void f32_to_bf16(const void* in, void* out, int64_t count);
void f32_to_f16(const void* in, void* out, int64_t count);
void bf16_to_f32(const void* in, void* out, int64_t count);
void f16_to_f32(const void* in, void* out, int64_t count);

// Any type to float32. `count` is a whole number of blocks for a quantized type.
void to_f32(DType from, const void* in, float* out, int64_t count);

// Dequantizes whole blocks, with the same bits as ggml's reference code.
void dequantize(DType type, const void* in, float* out, int64_t count);

// Whether convert() supports the pair: any type to F32, F16 or BF16, or from == to.
bool can_convert(DType from, DType to);
// F64 and integers are converted to 16-bit types by way of float32, as in PyTorch.
void convert(DType from, const void* in, DType to, void* out, int64_t count);

}  // namespace snug::files
