// The global names that a pickle may use, and their meanings.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "files/weights/dtype.h"

namespace snug::files {

enum class Meaning : uint8_t {
  OrderedDict,       // () or ([(key, value), …])
  RebuildTensor,     // (storage, offset, sizes, strides, …)
  RebuildParameter,  // (tensor, …) -> tensor
  RebuildFromType,   // (function, type, arguments, state) -> function(*arguments)
  Size,              // (sizes) -> sizes
  Storage,           // a storage type, never called
  Opaque,            // its result is ignored
};

struct PickleGlobal {
  const char* module;
  const char* name;
  Meaning meaning;
  DType dtype = DType::F32;  // of a storage
};

// Index into the list; empty for any other name.
std::optional<int64_t> find_pickle_global(std::string_view module, std::string_view name);
const PickleGlobal& pickle_global(int64_t index);

}  // namespace snug::files
