// Which type each tensor of a quantized GGUF file gets. A mix is named after its usual type; the
// head, and in Q4_K_M and Q5_K_M some layers' values and down projections, keep more bits. The
// choice is that of llama.cpp's llama-quantize, so that a file here is what users of that name
// know.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "files/weights/dtype.h"

namespace snug::files {

struct GgufMix {
  std::string_view name;
  DType usual;
  bool more_bits;      // in some layers
  uint32_t file_type;  // general.file_type
};

// Throws UserError for an unknown name.
const GgufMix& gguf_mix(std::string_view name);

// Whether there is an importance matrix (importance.h).
enum class Importance { None, Known };

// Vectors, those of experts that are stacked too, routers, GPT-2's positions and the embeddings of
// a vision model are float32 in every GGUF file.
bool stays_float32(std::string_view name, size_t num_dimensions);

// The type of each of a file's tensors, which are named as in GGUF.
std::vector<DType> types_in_mix(const GgufMix& mix, const std::vector<TensorInfo>& tensors,
                                Importance importance = Importance::None);

}  // namespace snug::files
