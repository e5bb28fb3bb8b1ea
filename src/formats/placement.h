// The check that safetensors and GGUF share: no two tensors over the same bytes of a file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "formats/tensor_source.h"

namespace snug::formats {

// Indices into `tensors` by position in the file, empty tensors left out. Throws UserError naming
// two tensors that overlap; all must lie in one file.
std::vector<size_t> order_in_file(const std::string& label,
                                  const std::vector<PlacedTensor>& tensors);

}  // namespace snug::formats
