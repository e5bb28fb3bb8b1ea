// The element types of weight files and their sizes. Quantized types consist of blocks: a block of
// `block_elements` numbers is stored in `block_bytes` bytes, scale included.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace snug::files {

enum class DType : uint8_t {
  F64,
  F32,
  F16,
  BF16,
  I64,
  I32,
  I16,
  I8,
  U8,
  Bool,
  F8E4M3,
  F8E5M2,
  F8E8M0,  // powers of two: scales
  Q4_0,
  Q4_1,
  Q5_0,
  Q5_1,
  Q8_0,
  Q2_K,
  Q3_K,
  Q4_K,
  Q5_K,
  Q6_K,
  MXFP4,
};

struct DTypeLayout {
  const char* name;
  int64_t block_elements;  // 1 for plain types
  int64_t block_bytes;
};

const DTypeLayout& layout(DType type);
const char* name(DType type);  // "BF16", "Q4_K"
bool is_quantized(DType type);
bool is_floating(DType type);  // F64, F32, F16, BF16, F8 and the quantized ones

// Bytes of `elements` numbers. Throws UserError on overflow, a negative count or an incomplete
// block.
int64_t bytes_for(DType type, int64_t elements);

// The product of the sizes; throws UserError on a negative size or overflow.
int64_t count_elements(std::span<const int64_t> shape);

struct TensorInfo {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;  // row-major, outermost first, as in PyTorch
  int64_t nbytes = 0;          // as stored: bytes_for(dtype, num_elements())

  int64_t num_elements() const { return count_elements(shape); }
};

// Fills in nbytes; throws UserError if the shape does not fit the type.
TensorInfo make_tensor_info(std::string name, DType dtype, std::vector<int64_t> shape);

// "[32000, 2048]"
std::string show_shape(std::span<const int64_t> shape);

}  // namespace snug::files
