// Built without contraction of a*b + c (see CMakeLists.txt): a scale is the product, rounded, plus
// the mean, as bitsandbytes' two steps make it.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/quantized_matrix.h"

#include "core/kernels/cpu/linalg/parallel.h"
#include "core/kernels/dynamic_map.h"

namespace snug::kernels {
namespace {

// Quantiles of the normal distribution, from -1 to 1 with an exact 0 (Dettmers et al. 2023).
constexpr float kNf4Values[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

// A sign, two bits of exponent and one of mantissa, as twelfths of the largest, by code. Both zeros
// are positive, as in bitsandbytes where rows are whole blocks.
constexpr float kFp4Values[16] = {
    0.0f, 0.0625f / 12,  8.0f / 12,  1.0f,  4.0f / 12,  0.5f,  2.0f / 12,  0.25f,
    0.0f, -0.0625f / 12, -8.0f / 12, -1.0f, -4.0f / 12, -0.5f, -2.0f / 12, -0.25f,
};

constexpr FormatTraits kFormats[kNumFormats] = {
    {.name = "nf4", .values = kNf4Values},
    {.name = "nf4-dq", .values = kNf4Values, .nested = true},
    {.name = "fp4", .values = kFp4Values, .by_magnitude = true},
    {.name = "fp4-dq", .values = kFp4Values, .nested = true, .by_magnitude = true},
    {.name = "int8", .values = nullptr},
};

}  // namespace

const FormatTraits& traits(QuantizedFormat format) { return kFormats[static_cast<size_t>(format)]; }

std::optional<QuantizedFormat> quantized_format_named(std::string_view name) {
  for (int i = 0; i < kNumFormats; ++i) {
    if (name == kFormats[i].name) return static_cast<QuantizedFormat>(i);
  }
  return std::nullopt;
}

QuantizedLayout quantized_layout(QuantizedFormat format, int64_t rows, int64_t cols) {
  using cpu::ceil_div, cpu::round_up;
  const bool four_bits = traits(format).four_bits(), nested = traits(format).nested;
  const int64_t elements = rows * cols;
  QuantizedLayout layout;
  layout.num_scales = four_bits ? ceil_div(elements, kWeightBlock) : rows;
  layout.num_nested_scales = nested ? ceil_div(layout.num_scales, kScaleBlock) : 0;
  const auto after = [](int64_t start, int64_t bytes) {
    return start + round_up(bytes, kPartAlignment);
  };
  layout.scales = after(0, four_bits ? ceil_div(elements, 2) : elements);
  layout.nested_scales = after(layout.scales, layout.num_scales * (nested ? 1 : 4));
  layout.mean = after(layout.nested_scales, layout.num_nested_scales * 4);
  layout.bytes = after(layout.mean, nested ? 4 : 0);
  return layout;
}

int64_t quantized_bytes(QuantizedFormat format, int64_t rows, int64_t cols) {
  return quantized_layout(format, rows, cols).bytes;
}

QuantizedMatrix quantized_matrix(QuantizedFormat format, int64_t rows, int64_t cols,
                                 const void* bytes) {
  QuantizedMatrix matrix{.format = format, .rows = rows, .cols = cols};
  if (!bytes) return matrix;
  const QuantizedLayout layout = quantized_layout(format, rows, cols);
  const auto* start = static_cast<const uint8_t*>(bytes);
  const auto floats = [&](int64_t at) { return reinterpret_cast<const float*>(start + at); };
  matrix.codes = start;
  if (traits(format).nested) {
    matrix.scale_codes = start + layout.scales;
    matrix.nested_scales = floats(layout.nested_scales);
    matrix.mean = *floats(layout.mean);
  } else {
    matrix.scales = floats(layout.scales);
  }
  return matrix;
}

const float* scales_at(const QuantizedMatrix& weight, int64_t first, int64_t count, float* space) {
  if (weight.scales) return weight.scales + first;
  static const float* const map = signed_dynamic_map().values;
  const uint8_t* codes = weight.scale_codes + first;
  for (int64_t i = 0; i < count; ++i) {
    const float product = map[codes[i]] * weight.nested_scales[(first + i) / kScaleBlock];
    space[i] = product + weight.mean;
  }
  return space;
}

}  // namespace snug::kernels
