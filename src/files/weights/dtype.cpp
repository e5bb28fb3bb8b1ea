// SPDX-License-Identifier: Apache-2.0
#include "files/weights/dtype.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <utility>

#include "base/error.h"

namespace snug::files {
namespace {

// In the order of the enum.
constexpr std::array<DTypeLayout, 24> kLayouts = {{
    {"F64", 1, 8},      {"F32", 1, 4},      {"F16", 1, 2},      {"BF16", 1, 2},
    {"I64", 1, 8},      {"I32", 1, 4},      {"I16", 1, 2},      {"I8", 1, 1},
    {"U8", 1, 1},       {"BOOL", 1, 1},     {"F8_E4M3", 1, 1},  {"F8_E5M2", 1, 1},
    {"F8_E8M0", 1, 1},  {"Q4_0", 32, 18},   {"Q4_1", 32, 20},   {"Q5_0", 32, 22},
    {"Q5_1", 32, 24},   {"Q8_0", 32, 34},   {"Q2_K", 256, 84},  {"Q3_K", 256, 110},
    {"Q4_K", 256, 144}, {"Q5_K", 256, 176}, {"Q6_K", 256, 210}, {"MXFP4", 32, 17},
}};
static_assert(kLayouts.size() == static_cast<size_t>(DType::MXFP4) + 1);

}  // namespace

const DTypeLayout& layout(DType type) { return kLayouts.at(static_cast<size_t>(type)); }

const char* name(DType type) { return layout(type).name; }

bool is_quantized(DType type) { return type >= DType::Q4_0; }

bool is_floating(DType type) { return type <= DType::BF16 || type >= DType::F8E4M3; }

int64_t bytes_for(DType type, int64_t elements) {
  const DTypeLayout& block = layout(type);
  if (elements < 0) throw UserError("a tensor cannot have {} elements", elements);
  if (elements % block.block_elements != 0)
    throw UserError("{} elements are not a whole number of {} blocks, which hold {} each", elements,
                    block.name, block.block_elements);
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / block.block_elements, block.block_bytes, &bytes))
    throw UserError("{} elements of {} take more bytes than 63 bits can count", elements,
                    block.name);
  return bytes;
}

int64_t count_elements(std::span<const int64_t> shape) {
  int64_t count = 1;
  bool overflow = false, empty = false;
  for (const int64_t size : shape) {
    if (size < 0) throw UserError("shape {} has a negative size", show_shape(shape));
    empty = empty || size == 0;
    overflow = overflow || __builtin_mul_overflow(count, size, &count);
  }
  // An empty tensor has no elements even if the product of its other sizes overflows.
  if (empty) return 0;
  if (overflow)
    throw UserError("shape {} has more elements than 63 bits can count", show_shape(shape));
  return count;
}

TensorInfo make_tensor_info(std::string name, DType dtype, std::vector<int64_t> shape) {
  TensorInfo info{std::move(name), dtype, std::move(shape), 0};
  const int64_t elements = info.num_elements();
  const int64_t row = info.shape.empty() ? 1 : info.shape.back();
  if (row % layout(dtype).block_elements != 0)
    throw UserError("rows of {} elements are not a whole number of {} blocks of {}", row,
                    files::name(dtype), layout(dtype).block_elements);
  info.nbytes = bytes_for(dtype, elements);
  return info;
}

std::string show_shape(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace snug::files
