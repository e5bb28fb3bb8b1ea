// A check for safetensors and GGUF: no two tensors may overlap in a file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "files/weights/tensor_source.h"

namespace snug::files {

// Indices into `tensors` in file order, without empty tensors. All must be in the same file. Throws
// UserError with two tensors that overlap.
std::vector<size_t> order_in_file(const std::string& label,
                                  const std::vector<PlacedTensor>& tensors);

}  // namespace snug::files
