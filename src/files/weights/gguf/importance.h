// How much errors in each column of a matrix matter when it is quantized: the mean square of what
// the column is multiplied with, over some text. llama.cpp calls it an importance matrix, and its
// llama-imatrix writes one in either of two forms: a GGUF file, or a .dat file as it used to.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "files/weights/dtype.h"

namespace snug::files {

struct ImportanceMatrix {
  std::string label;                                               // where it comes from
  std::map<std::string, std::vector<float>, std::less<>> columns;  // by the tensor's name in GGUF

  // Null for a tensor without an entry. Throws UserError if the entry is of another width.
  const float* find(const TensorInfo& tensor) const;
};

// Throws UserError for a file that is neither, or that holds negative or infinite values.
ImportanceMatrix read_importance(const std::filesystem::path& path);

// As a GGUF file that read_importance() and llama.cpp read: the means, as sums of one square each.
void write_importance(const ImportanceMatrix& matrix, const std::filesystem::path& path);

}  // namespace snug::files
