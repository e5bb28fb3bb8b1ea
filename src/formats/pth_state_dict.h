// From a pickle's values to placed tensors: finds the state dict and checks every tensor against
// the storage it claims to lie in.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "formats/pickle.h"
#include "formats/tensor_source.h"

namespace snug::formats {

// Where the bytes of a storage lie in the file.
struct StorageRange {
  size_t offset = 0;
  size_t bytes = 0;
};
using Storages = std::map<std::string, StorageRange, std::less<>>;  // by key

// Throws UserError beginning with `label`.
std::vector<PlacedTensor> place_state_dict(const Pickle& pickle, const Storages& storages,
                                           const std::string& label);

}  // namespace snug::formats
