// Numbers of 8 bits, and floating ones of 4, with scales of their own.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "files/weights/packed/layouts.h"

namespace snug::files {
namespace {

// What a byte of a microscaling format stands for.
float power_of(float byte) { return std::ldexp(1.f, static_cast<int>(byte) - 127); }

// (number - zero point) * scale, with a scale for each block of rows and columns.
class Scaled : public PackedValues {
 public:
  struct Layout {
    PackedPart weight, scales;
    std::optional<PackedPart> zeros;
    int64_t cols, block_rows, block_cols, scale_cols;
    bool powers;  // a scale is 2^(byte - 127)
  };
  explicit Scaled(Layout layout) : l_(std::move(layout)) {}

  void read_rows(int64_t first, int64_t count, float* out) const override {
    l_.weight.numbers(first * l_.cols, count * l_.cols, out);
    std::vector<float> scales(static_cast<size_t>(l_.scale_cols)), zeros(scales.size());
    for (int64_t row = first; row < first + count; ++row, out += l_.cols) {
      const int64_t begin = row / l_.block_rows * l_.scale_cols;
      l_.scales.numbers(begin, l_.scale_cols, scales.data());
      if (l_.powers)
        for (float& scale : scales) scale = power_of(scale);
      if (l_.zeros) l_.zeros->numbers(begin, l_.scale_cols, zeros.data());
      for (int64_t col = 0; col < l_.cols; ++col) {
        const auto block = static_cast<size_t>(col / l_.block_cols);
        out[col] = (out[col] - zeros[block]) * scales[block];
      }
    }
  }

 private:
  Layout l_;
};

// Rows and columns of `scales`; those of one a row may be a vector, that of all nothing.
std::array<int64_t, 2> grid(const PackedPart& scales) {
  const std::vector<int64_t>& shape = scales.info.shape;
  if (shape.size() > 2)
    throw UserError("its \"{}\" is {} instead of a matrix", scales.shown(), show_shape(shape));
  return {scales.rows(), scales.row_elements()};
}

// How many of `size` rows or columns share one of `parts` scales.
int64_t block_of(int64_t size, int64_t parts, int64_t said) {
  if (parts == 1) return size;
  if (parts == size) return 1;
  if (said > 0 && (size + said - 1) / said == parts) return said;
  return parts > 0 && size % parts == 0 ? size / parts : 0;
}

constexpr std::array<float, 16> kFp4 = {0.f,  0.5f,  1.f,  1.5f,  2.f,  3.f,  4.f,  6.f,
                                        -0.f, -0.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};

// Rows of codes, two a byte with the first in its lower half.
class Fp4 : public PackedValues {
 public:
  struct Layout {
    PackedPart codes, scales;
    int64_t cols, group;
    bool powers;      // a scale is 2^(byte - 127)
    float all;        // of the scales
    bool is_divisor;  // scales are divided by it
  };
  explicit Fp4(Layout layout) : l_(std::move(layout)) {}

  void read_rows(int64_t first, int64_t count, float* out) const override {
    const int64_t groups = l_.cols / l_.group;
    for (int64_t i = first * groups; i < (first + count) * groups; ++i) {
      const float scale = scale_of(i);
      const std::byte* codes = l_.codes.bytes + i * l_.group / 2;
      for (int64_t byte = 0; byte < l_.group / 2; ++byte, ++codes) {
        *out++ = kFp4[static_cast<uint8_t>(*codes) & 15] * scale;
        *out++ = kFp4[static_cast<uint8_t>(*codes) >> 4] * scale;
      }
    }
  }

 private:
  float scale_of(int64_t index) const {
    const float stored = l_.scales.number(index);
    if (l_.powers) return power_of(stored);
    return l_.is_divisor ? stored / l_.all : stored * l_.all;
  }

  Layout l_;
};

}  // namespace

Unpacked unpack_scaled(const ModuleParts& parts, const PackingOptions& options) {
  const PackedPart& weight = parts["weight"];
  const PackedPart* inverse = parts.find("weight_scale_inv");  // which is the scale nevertheless
  const PackedPart& scales = inverse != nullptr ? *inverse : parts["weight_scale"];
  if (weight.info.shape.size() != 2)
    throw UserError("it is {} instead of a matrix", show_shape(weight.info.shape));
  const int64_t rows = weight.rows(), cols = weight.row_elements();
  const auto [scale_rows, scale_cols] = grid(scales);
  Scaled::Layout layout{.weight = weight,
                        .scales = scales,
                        .zeros = {},
                        .cols = cols,
                        .block_rows = block_of(rows, scale_rows, options.block[0]),
                        .block_cols = block_of(cols, scale_cols, options.block[1]),
                        .scale_cols = scale_cols,
                        .powers = scales.info.dtype == DType::U8};
  if (!layout.powers && (!is_floating(scales.info.dtype) || is_quantized(scales.info.dtype)))
    throw UserError("its \"{}\" is {}, which is no type of a scale", scales.shown(),
                    name(scales.info.dtype));
  if (layout.block_rows == 0 || layout.block_cols == 0)
    throw UserError("its \"{}\" {} is no grid of blocks over {}", scales.shown(),
                    show_shape(scales.info.shape), show_shape(weight.info.shape));
  if (const PackedPart* zeros = parts.find("weight_zero_point")) {
    if (zeros->info.num_elements() != scales.info.num_elements())
      throw UserError("its weight_zero_point has {} numbers instead of {}",
                      zeros->info.num_elements(), scales.info.num_elements());
    layout.zeros = *zeros;
  }
  const bool names_type = scales.info.dtype == DType::BF16 || scales.info.dtype == DType::F16;
  const DType dtype = names_type ? scales.info.dtype : options.dtype;
  return {weight.info.shape, dtype, std::make_shared<Scaled>(std::move(layout))};
}

Unpacked unpack_fp4(const ModuleParts& parts, const PackingOptions& options) {
  const auto first_of = [&](const char* one, const char* other) {
    const PackedPart* found = parts.find(one);
    return found != nullptr ? found : parts.find(other);
  };
  const PackedPart* blocks = parts.find("blocks");
  const PackedPart& codes = blocks != nullptr ? *blocks : *first_of("weight_packed", "weight");
  const PackedPart& scales = blocks != nullptr ? parts["scales"] : parts["weight_scale"];
  const PackedPart* divisor = parts.find("weight_global_scale");
  const PackedPart* all = divisor != nullptr ? divisor : parts.find("weight_scale_2");
  std::vector<int64_t> shape = codes.info.shape;
  if (blocks != nullptr && shape.size() >= 3) {  // bytes of a group, groups
    const int64_t bytes = shape.back();
    shape.pop_back();
    shape.back() *= bytes;
  }
  if (codes.info.dtype != DType::U8 || shape.size() < 2 || shape.back() < 1)
    throw UserError("its \"{}\" is {} of {} instead of a matrix of U8", codes.shown(),
                    show_shape(codes.info.shape), name(codes.info.dtype));
  shape.back() *= 2;
  const int64_t cols = shape.back();
  std::vector<int64_t> of_scales = shape;
  const bool powers = scales.info.dtype == DType::U8;
  const int64_t group = powers ? 32 : 16;
  of_scales.back() /= group;
  const bool one_for_all = all == nullptr || (all->info.num_elements() == 1 && !powers);
  const bool is_known = powers || scales.info.dtype == DType::F8E4M3;
  if (cols % group != 0 || scales.info.shape != of_scales || !one_for_all || !is_known)
    throw UserError(
        "its \"{}\" is {} of {}; a matrix of {} in 4 bits has bytes for 32 numbers each (MXFP4) or "
        "numbers of F8_E4M3 for 16 (NVFP4)",
        scales.shown(), show_shape(scales.info.shape), name(scales.info.dtype), show_shape(shape));
  const bool is_divisor = divisor != nullptr;
  return {shape, options.dtype,
          std::make_shared<Fp4>(Fp4::Layout{.codes = codes,
                                            .scales = scales,
                                            .cols = cols,
                                            .group = group,
                                            .powers = powers,
                                            .all = all == nullptr ? 1.f : all->number(0),
                                            .is_divisor = is_divisor})};
}

}  // namespace snug::files
