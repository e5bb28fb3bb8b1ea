// Quantizes weights (format: kernels/quantized_matrix.h) and dequantizes them. Codes and scales are
// bit for bit those of bitsandbytes 0.50 on the CPU, for elements of any type:
//   NF4, FP4: x * (1 / absmax) of the block, absmax at least 1e-38 there, to the next value (a tie
//   to the lower one). A last block of less than 64 elements is divided by its absmax instead.
//   double quantization: absmax less the mean of all, in blocks of 256, to the entry of the dynamic
//   map that is nearest to the middle of the one of 65535 steps that it falls in; the mean is added
//   up in torch's order on one thread.
//   int8: x * (1 / absmax * 127) of the row, to the next integer (a tie to the even one).
// A block with NaN has NaN for its scale and the highest value's code throughout; one with an
// infinity has infinity, and the highest value's code in its place. In int8 both are 0.
// Dequantized are the float32 product of value and scale, rounded once to the type asked for; only
// results below float32's smallest normal number may differ from bitsandbytes', which drops them on
// some processors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "core/kernels/quantized_matrix.h"
#include "core/kernels/scalar.h"

namespace snug::kernels::cpu {

// Quantizes a weight's elements in row-major order, in chunks of any length and type, as read from
// a file. Besides the result it holds less than one block (int8: one row) of elements in float32
// and, with double quantization, the scales in float32 until finish() (a sixteenth of a byte per
// element).
class Quantizer {
 public:
  // `bytes`: quantized_bytes(format, rows, cols), aligned to 4. All of them are written.
  Quantizer(QuantizedFormat format, int64_t rows, int64_t cols, void* bytes, int num_threads = 0);

  // The next `count` elements.
  void add(const void* elements, Scalar type, int64_t count);
  // Call after the last element; throws if some are missing.
  void finish();

 private:
  void quantize_blocks(const void* elements, Scalar type, int64_t blocks);
  void quantize_last_block();
  void quantize_scales();

  QuantizedFormat format_;
  QuantizedLayout layout_;
  int64_t elements_;
  int64_t block_;  // elements that share a scale
  uint8_t* bytes_;
  int num_threads_;
  int64_t taken_ = 0;           // whole blocks' elements
  std::vector<float> waiting_;  // of a block that is not whole yet
  std::vector<float> unquantized_scales_;
  float* scales_;
};

// Dequantizes elements [begin, begin + count), in row-major order, to `type`.
void dequantize(const QuantizedMatrix& weight, int64_t begin, int64_t count, void* out, Scalar type,
                int num_threads = 0);

}  // namespace snug::kernels::cpu
