// Frozen weights in 4 or 8 bits, as bitsandbytes makes them, and where the parts of one lie in its
// block of bytes. NF4 and FP4: a code of 4 bits an element, the earlier one of a byte in its upper
// half, and one float32 scale (the largest magnitude) for 64 elements that follow each other row by
// row. With double quantization a scale is a code of 8 bits too: an entry of the signed dynamic map
// times the float32 scale of 256 such codes, plus the mean of all scales. Int8: a signed code an
// element and one float32 scale a row, 127 times the step. 4.5, 4.127 and 8 bits an element.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/kernels/scalar.h"

namespace snug::kernels {

enum class QuantizedFormat : uint8_t { Nf4, Nf4DoubleQuant, Fp4, Fp4DoubleQuant, Int8 };

inline constexpr int64_t kWeightBlock = 64;    // elements a scale, in 4 bits
inline constexpr int64_t kScaleBlock = 256;    // scales a nested scale
inline constexpr int64_t kPartAlignment = 64;  // of each part inside the block of bytes

// All that tells formats apart; nothing else compares them.
struct FormatTraits {
  const char* name;           // "nf4", "nf4-dq", "fp4", "fp4-dq", "int8"
  const float* values;        // the number that each 4-bit code stands for; null: 8 bits, a number
  bool nested = false;        // double quantization: scales are quantized too
  bool by_magnitude = false;  // 4-bit codes are a sign and a magnitude

  bool four_bits() const { return values != nullptr; }
  // Elements that share a scale.
  int64_t block(int64_t cols) const { return four_bits() ? kWeightBlock : cols; }
};
inline constexpr int kNumFormats = 5;
const FormatTraits& traits(QuantizedFormat format);
std::optional<QuantizedFormat> quantized_format_named(std::string_view name);

// Where the parts begin, in bytes; what a format has not is at `bytes`, the end.
struct QuantizedLayout {
  int64_t codes = 0;          // (elements + 1) / 2 bytes, or one an element
  int64_t scales = 0;         // float32; uint8 with double quantization
  int64_t nested_scales = 0;  // float32
  int64_t mean = 0;           // float32
  int64_t bytes = 0;          // of the whole
  int64_t num_scales = 0;
  int64_t num_nested_scales = 0;
};
QuantizedLayout quantized_layout(QuantizedFormat format, int64_t rows, int64_t cols);
int64_t quantized_bytes(QuantizedFormat format, int64_t rows, int64_t cols);

// A weight's parts by their addresses.
struct QuantizedMatrix {
  QuantizedFormat format = QuantizedFormat::Nf4;
  int64_t rows = 0, cols = 0;
  const uint8_t* codes = nullptr;
  const float* scales = nullptr;  // null with double quantization, and then:
  const uint8_t* scale_codes = nullptr;
  const float* nested_scales = nullptr;
  float mean = 0;
};

// `bytes` may be null where only sizes count.
QuantizedMatrix quantized_matrix(QuantizedFormat format, int64_t rows, int64_t cols,
                                 const void* bytes);

// Scales [first, first + count), count <= kScalesAtOnce: where they lie, or worked out in `space`.
inline constexpr int64_t kScalesAtOnce = 64;
const float* scales_at(const QuantizedMatrix& weight, int64_t first, int64_t count, float* space);

// An int8 element is code * scale * this, each product rounded to float32.
inline constexpr float kInt8Step = 7.874015718698502e-3f;

// What cuda::dequantize writes as numbers, with `bytes` and `out` in the device's memory.
struct DequantizeOnDevice {
  QuantizedFormat format = QuantizedFormat::Nf4;
  int64_t rows = 0, cols = 0;
  const uint8_t* bytes = nullptr;
  int64_t begin = 0, count = 0;
  void* out = nullptr;
  Scalar type = Scalar::F32;
};

}  // namespace snug::kernels
