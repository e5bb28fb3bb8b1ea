// The names a pickle may use, and what each stands for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "formats/dtype.h"

namespace snug::formats {

enum class Meaning : uint8_t {
  OrderedDict,       // () or ([(key, value), …])
  RebuildTensor,     // (storage, offset, sizes, strides, …)
  RebuildParameter,  // (tensor, …) -> tensor
  RebuildFromType,   // (function, type, arguments, state) -> function(*arguments)
  Size,              // (sizes) -> sizes
  Storage,           // a type of storage, only named
  Opaque,            // called or named, its result is of no interest
};

struct PickleGlobal {
  const char* module;
  const char* name;
  Meaning meaning;
  DType dtype = DType::F32;  // of a storage
};

// Index into the list; empty for every name that is not on it.
std::optional<int64_t> find_pickle_global(std::string_view module, std::string_view name);
const PickleGlobal& pickle_global(int64_t index);

}  // namespace snug::formats
