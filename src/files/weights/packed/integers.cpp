// GPTQ, AWQ and compressed-tensors' packed integers: value = (code - zero point) * scale, in
// float32 and exact but for the product, which the programs round to the scales' type.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "files/weights/packed/layouts.h"

namespace snug::files {
namespace {

// Numbers of `bits` each in 32-bit words one behind the other, from the lowest bit on; `step` words
// lie between two that follow each other.
struct BitStream {
  const PackedPart* words = nullptr;
  int64_t bits = 4, step = 1;

  uint32_t at(int64_t first_word, int64_t index) const {
    const int64_t bit = index * bits, shift = bit % 32;
    const int64_t word = first_word + bit / 32 * step;
    uint32_t value = static_cast<uint32_t>(words->word(word)) >> shift;
    if (shift + bits > 32) value |= static_cast<uint32_t>(words->word(word + step)) << (32 - shift);
    return value & ((1U << bits) - 1);
  }
};

int64_t words_for(int64_t numbers, int64_t bits) { return (numbers * bits + 31) / 32; }

// Of 2 to 8 bits those that fill so many words; nothing if several or none do.
std::optional<int64_t> bits_of(int64_t numbers, int64_t words) {
  std::optional<int64_t> found;
  for (int64_t bits = 2; bits <= 8; ++bits) {
    if (words_for(numbers, bits) != words) continue;
    if (found) return std::nullopt;
    found = bits;
  }
  return found;
}

int64_t groups_for(int64_t inputs, int64_t size) { return (inputs + size - 1) / size; }

// The group of each input.
using Groups = std::vector<int32_t>;

Groups groups_of(const PackedPart* order, int64_t inputs, int64_t groups, int64_t said) {
  Groups result(static_cast<size_t>(inputs));
  if (order == nullptr) {
    // The last one may have fewer.
    const bool fits = said > 0 && groups_for(inputs, said) == groups;
    if (!fits && (groups < 1 || inputs % groups != 0))
      throw UserError("its {} inputs are not whole groups of {} scales", inputs, groups);
    const int64_t size = fits ? said : inputs / groups;
    for (int64_t i = 0; i < inputs; ++i)
      result[static_cast<size_t>(i)] = static_cast<int32_t>(i / size);
    return result;
  }
  if (order->info.dtype != DType::I32 || order->info.num_elements() != inputs)
    throw UserError("its \"{}\" has {} of {} instead of {} of I32", order->shown(),
                    order->info.num_elements(), name(order->info.dtype), inputs);
  for (int64_t i = 0; i < inputs; ++i) {
    const int32_t group = order->word(i);
    if (group < 0 || group >= groups)
      throw UserError("its \"{}\" puts input {} into group {}; there are {}", order->shown(), i,
                      group, groups);
    result[static_cast<size_t>(i)] = group;
  }
  return result;
}

void require_words(const PackedPart& part) {
  if (part.info.dtype != DType::I32 || part.info.shape.size() != 2)
    throw UserError("its \"{}\" is {} of {} instead of a matrix of I32", part.shown(),
                    show_shape(part.info.shape), name(part.info.dtype));
}

void require_numbers(const PackedPart& part) {
  if (!is_floating(part.info.dtype) || is_quantized(part.info.dtype))
    throw UserError("its \"{}\" is {}, which is no floating-point type", part.shown(),
                    name(part.info.dtype));
}

// Matrices of the transpose: scales and zero points have a row for each group of inputs, codes lie
// along the inputs (GPTQ) or the outputs (AWQ).
class Transposed : public PackedValues {
 public:
  struct Layout {
    PackedPart codes, zeros, scales;
    int64_t inputs, outputs, bits;
    bool along_inputs;
    uint32_t zero_offset;  // that a stored zero point lacks
    Groups groups;
  };
  explicit Transposed(Layout layout) : l_(std::move(layout)) {}

  void read_rows(int64_t first, int64_t count, float* out) const override {
    std::vector<float> scales(static_cast<size_t>(count)), zeros(scales.size());
    int32_t group = -1;
    for (int64_t input = 0; input < l_.inputs; ++input) {
      if (const int32_t own = l_.groups[static_cast<size_t>(input)]; own != group) {
        group = own;
        l_.scales.numbers(group * l_.outputs + first, count, scales.data());
        for (int64_t row = 0; row < count; ++row)
          zeros[static_cast<size_t>(row)] = static_cast<float>(zero_of(group, first + row));
      }
      for (int64_t row = 0; row < count; ++row) {
        const auto code = static_cast<float>(code_of(input, first + row));
        out[row * l_.inputs + input] =
            (code - zeros[static_cast<size_t>(row)]) * scales[static_cast<size_t>(row)];
      }
    }
  }

 private:
  // Where AWQ puts each of eight columns in its word.
  static int64_t place(int64_t column) {
    constexpr std::array<int64_t, 8> kPlaces = {0, 4, 1, 5, 2, 6, 3, 7};
    return column / 8 * 8 + kPlaces[static_cast<size_t>(column % 8)];
  }

  uint32_t code_of(int64_t input, int64_t output) const {
    if (l_.along_inputs) return BitStream{&l_.codes, l_.bits, l_.outputs}.at(output, input);
    return BitStream{&l_.codes, l_.bits}.at(input * l_.codes.row_elements(), place(output));
  }

  uint32_t zero_of(int64_t group, int64_t output) const {
    const uint32_t stored = BitStream{&l_.zeros, l_.bits}.at(
        group * l_.zeros.row_elements(), l_.along_inputs ? output : place(output));
    return (stored + l_.zero_offset) & ((1U << l_.bits) - 1);
  }

  Layout l_;
};

Unpacked make_transposed(Transposed::Layout layout) {
  const int64_t inputs = layout.inputs, outputs = layout.outputs;
  const DType dtype = layout.scales.info.dtype;
  return {{outputs, inputs}, dtype, std::make_shared<Transposed>(std::move(layout))};
}

// Rows of integers with a scale for each of their groups, as compressed-tensors packs them.
class PackedRows : public PackedValues {
 public:
  struct Layout {
    PackedPart codes, scales;
    std::optional<PackedPart> zeros;
    int64_t rows, cols, bits;
    bool one_scale;  // for all
    Groups groups;
    int64_t num_groups;
  };
  explicit PackedRows(Layout layout) : l_(std::move(layout)) {}

  void read_rows(int64_t first, int64_t count, float* out) const override {
    const BitStream codes{&l_.codes, l_.bits};
    const auto middle = static_cast<float>(1 << (l_.bits - 1));
    std::vector<float> scales(static_cast<size_t>(l_.num_groups)), zeros(scales.size());
    for (int64_t row = first; row < first + count; ++row) {
      l_.scales.numbers(l_.one_scale ? 0 : row * l_.num_groups, l_.num_groups, scales.data());
      for (int64_t group = 0; group < l_.num_groups; ++group)
        zeros[static_cast<size_t>(group)] = zero_of(row, group);
      for (int64_t col = 0; col < l_.cols; ++col) {
        const auto group = static_cast<size_t>(l_.groups[static_cast<size_t>(col)]);
        const auto code = static_cast<float>(codes.at(row * l_.codes.row_elements(), col));
        *out++ = (code - middle - zeros[group]) * scales[group];
      }
    }
  }

 private:
  // Packed along the rows, with the middle added as to the codes; or plain numbers.
  float zero_of(int64_t row, int64_t group) const {
    if (!l_.zeros) return 0;
    if (l_.zeros->info.dtype != DType::I32)
      return l_.zeros->number(l_.one_scale ? 0 : row * l_.num_groups + group);
    const BitStream packed{&*l_.zeros, l_.bits, l_.num_groups};
    return static_cast<float>(packed.at(group, row)) - static_cast<float>(1 << (l_.bits - 1));
  }

  Layout l_;
};

}  // namespace

Unpacked unpack_gptq(const ModuleParts& parts, const PackingOptions& options) {
  const PackedPart &codes = parts["qweight"], &zeros = parts["qzeros"], &scales = parts["scales"];
  require_words(codes);
  require_words(zeros);
  require_numbers(scales);
  const int64_t outputs = codes.info.shape[1], groups = scales.rows();
  std::optional<int64_t> bits = bits_of(outputs, zeros.info.shape[1]);
  if (bits && *bits > 4 && *bits < 8)
    throw UserError("its {} bits lie in planes, which snug does not read; it reads 2, 3, 4 and 8",
                    *bits);
  if (scales.info.shape.size() != 2 || scales.info.shape[1] != outputs || zeros.rows() != groups ||
      !bits || codes.info.shape[0] * 32 % *bits != 0)
    throw UserError("its qweight {}, qzeros {} and scales {} do not belong together",
                    show_shape(codes.info.shape), show_shape(zeros.info.shape),
                    show_shape(scales.info.shape));
  const int64_t inputs = codes.info.shape[0] * 32 / *bits;
  return make_transposed({.codes = codes,
                          .zeros = zeros,
                          .scales = scales,
                          .inputs = inputs,
                          .outputs = outputs,
                          .bits = *bits,
                          .along_inputs = true,
                          .zero_offset = options.zeros_less_one ? 1U : 0U,
                          .groups = groups_of(parts.find("g_idx"), inputs, groups, options.group)});
}

Unpacked unpack_awq(const ModuleParts& parts, const PackingOptions& options) {
  constexpr int64_t kBits = 4;
  const PackedPart &codes = parts["qweight"], &zeros = parts["qzeros"], &scales = parts["scales"];
  require_words(codes);
  require_words(zeros);
  require_numbers(scales);
  const int64_t inputs = codes.info.shape[0], outputs = codes.info.shape[1] * 32 / kBits;
  const int64_t groups = scales.rows();
  if (scales.info.shape.size() != 2 || scales.info.shape[1] != outputs || zeros.rows() != groups ||
      zeros.info.shape[1] != codes.info.shape[1])
    throw UserError(
        "its qweight {}, qzeros {} and scales {} are not those of AWQ's \"gemm\" version, which "
        "snug reads",
        show_shape(codes.info.shape), show_shape(zeros.info.shape), show_shape(scales.info.shape));
  return make_transposed({.codes = codes,
                          .zeros = zeros,
                          .scales = scales,
                          .inputs = inputs,
                          .outputs = outputs,
                          .bits = kBits,
                          .along_inputs = false,
                          .zero_offset = 0,
                          .groups = groups_of(nullptr, inputs, groups, options.group)});
}

Unpacked unpack_packed_integers(const ModuleParts& parts, const PackingOptions& options) {
  const PackedPart &codes = parts["weight_packed"], &scales = parts["weight_scale"];
  const PackedPart& shape = parts["weight_shape"];
  require_words(codes);
  require_numbers(scales);
  constexpr float kMostRows = 1 << 24;  // which float32 counts exactly
  const auto is_size = [&](int64_t index) {
    return shape.number(index) >= 1 && shape.number(index) < kMostRows;
  };
  if (shape.info.num_elements() != 2 || is_floating(shape.info.dtype) || !is_size(0) || !is_size(1))
    throw UserError("its \"{}\" is not a pair of sizes", shape.shown());
  const auto rows = static_cast<int64_t>(shape.number(0));
  const auto cols = static_cast<int64_t>(shape.number(1));
  const std::optional<int64_t> bits = bits_of(cols, codes.info.shape[1]);
  const bool one_scale = scales.info.num_elements() == 1;
  if (codes.rows() != rows || !bits || (!one_scale && scales.rows() != rows))
    throw UserError(
        "its weight_packed {}, weight_scale {} and weight_shape [{}, {}] do not belong "
        "together",
        show_shape(codes.info.shape), show_shape(scales.info.shape), rows, cols);
  const int64_t groups = one_scale ? 1 : scales.row_elements();
  PackedRows::Layout layout{
      .codes = codes,
      .scales = scales,
      .zeros = {},
      .rows = rows,
      .cols = cols,
      .bits = *bits,
      .one_scale = one_scale,
      .groups = groups_of(parts.find("weight_g_idx"), cols, groups, options.group),
      .num_groups = groups};
  if (const PackedPart* zeros = parts.find("weight_zero_point")) {
    const int64_t wanted = zeros->info.dtype == DType::I32 ? words_for(rows, *bits) * groups
                                                           : scales.info.num_elements();
    if (zeros->info.num_elements() != wanted)
      throw UserError("its weight_zero_point has {} numbers instead of {}",
                      zeros->info.num_elements(), wanted);
    layout.zeros = *zeros;
  }
  const DType dtype = scales.info.dtype;
  return {{rows, cols}, dtype, std::make_shared<PackedRows>(std::move(layout))};
}

}  // namespace snug::files
