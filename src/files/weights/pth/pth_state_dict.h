// Finds the state dict in a pickle's values and checks each tensor against its storage.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "files/weights/pth/pickle.h"
#include "files/weights/tensor_source.h"

namespace snug::files {

// The byte range of a storage in the file.
struct StorageRange {
  size_t offset = 0;
  size_t bytes = 0;
};
using Storages = std::map<std::string, StorageRange, std::less<>>;  // by key

// Throws UserError beginning with `label`.
std::vector<PlacedTensor> place_state_dict(const Pickle& pickle, const Storages& storages,
                                           const std::string& label);

}  // namespace snug::files
