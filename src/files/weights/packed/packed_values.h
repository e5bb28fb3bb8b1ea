// Matrices whose values a program keeps in several tensors (codes of 2 to 8 bits, scales, zero
// points) and works out when it computes with them. Each class reads one layout, which its maker
// has checked. Values come as the program's own float32 or integer steps give them; that it rounds
// them to 16 bits afterwards is said by the joined tensor's type.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "files/weights/dtype.h"

namespace snug::files {

// A tensor's place in memory: row-major and without gaps, at any address.
struct PackedPart {
  TensorInfo info;
  const std::byte* bytes = nullptr;

  int64_t rows() const { return info.shape.empty() ? 1 : info.shape.front(); }
  int64_t row_elements() const { return rows() == 0 ? 0 : info.num_elements() / rows(); }
  // Elements [begin, begin + count) as numbers.
  void numbers(int64_t begin, int64_t count, float* out) const;
  float number(int64_t index) const;
  int32_t word(int64_t index) const;  // of an I32 tensor
  std::string shown() const;          // its name, for errors
};

// What bitsandbytes 0.50 keeps of a weight in 4 bits (quantize_4bit) or 8 (LLM.int8), so that it
// can be used as it is. Spans are not aligned.
struct BitsAndBytesParts {
  std::string kind;          // "nf4", "fp4", "int8"
  std::vector<float> codes;  // what each of the 16 codes stands for; none of int8
  int64_t block = 0;         // elements that share a scale; of int8 those of a row
  std::span<const std::byte> weight;
  std::span<const std::byte> scales;         // float32, or bytes of double quantization
  std::span<const std::byte> nested_scales;  // float32, one for nested_block scales; or none
  std::vector<float> nested_codes;           // 256
  int64_t nested_block = 0;
  float mean = 0;
};

class PackedValues {
 public:
  PackedValues() = default;
  virtual ~PackedValues() = default;
  PackedValues(const PackedValues&) = delete;
  PackedValues& operator=(const PackedValues&) = delete;

  // Rows [first, first + count) of the matrix, row-major. Threads may share it.
  virtual void read_rows(int64_t first, int64_t count, float* out) const = 0;
  virtual const BitsAndBytesParts* bits_and_bytes() const { return nullptr; }
};

}  // namespace snug::files
