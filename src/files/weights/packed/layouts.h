// The layouts of packed matrices: what tells them apart, and how each is checked. A maker throws
// UserError, without the tensor's name, for parts that do not fit each other.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "files/weights/packed/packed_values.h"

namespace snug::files {

struct Unpacked {
  std::vector<int64_t> shape;  // (..., rows, columns)
  DType dtype = DType::BF16;   // to which the program rounds values
  std::shared_ptr<const PackedValues> values;
};

// A module's tensors by what follows its name: "weight", "weight_scale", "qweight".
class ModuleParts {
 public:
  void add(const std::string& part, PackedPart tensor) { parts_[part] = std::move(tensor); }
  const PackedPart* find(const std::string& part) const;
  const PackedPart& operator[](const std::string& part) const;  // throws UserError if it is absent
  const std::map<std::string, PackedPart>& all() const { return parts_; }

 private:
  std::map<std::string, PackedPart> parts_;
};

// What a folder's quantization_config says beside what the tensors' shapes do.
struct PackingOptions {
  DType dtype = DType::BF16;              // the model's: for layouts that name none
  bool zeros_less_one = true;             // GPTQ's first version stores a zero point less 1
  std::array<int64_t, 2> block = {0, 0};  // rows and columns of a scale; 0: not said
  int64_t group = 0;                      // inputs of a scale; 0: not said
};

// bitsandbytes: quantize_4bit's nf4 and fp4 with its state (weight.absmax, weight.quant_map, …),
// and LLM.int8's SCB, 127 steps of a row.
Unpacked unpack_bits_and_bytes_4(const ModuleParts& parts);
Unpacked unpack_bits_and_bytes_8(const ModuleParts& parts, const PackingOptions& options);
// qweight, qzeros, scales, g_idx: GPTQ packs along the inputs, AWQ (its "gemm" version) along the
// outputs, eight columns in an order of their own.
Unpacked unpack_gptq(const ModuleParts& parts, const PackingOptions& options);
Unpacked unpack_awq(const ModuleParts& parts, const PackingOptions& options);
// compressed-tensors' pack-quantized: integers of 2 to 8 bits, packed along the inputs.
Unpacked unpack_packed_integers(const ModuleParts& parts, const PackingOptions& options);
// Numbers of 8 bits (floating or integer) with a scale for all, for each row, or for each block:
// DeepSeek's and Qwen's block-wise FP8, FBGEMM's, compressed-tensors' float- and int-quantized, and
// MXFP8, whose scales are bytes that stand for powers of 2.
Unpacked unpack_scaled(const ModuleParts& parts, const PackingOptions& options);
// Floating numbers of 4 bits: NVFP4 (a scale in FP8 for 16, one more for all; as compressed-tensors
// and ModelOpt write it) and MXFP4 (a power of 2 for 32; gpt-oss' experts too).
Unpacked unpack_fp4(const ModuleParts& parts, const PackingOptions& options);

}  // namespace snug::files
