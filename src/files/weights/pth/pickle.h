// Parses a pickle stream as plain data. Nothing is executed: only a short list of callables, for
// tensors and ordered dictionaries, is known, and every other name is refused.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/weights/byte_reader.h"
#include "files/weights/dtype.h"

namespace snug::files {

// Values are in one vector and refer to each other by index, so shared and cyclic structures cost
// nothing and nothing is walked or freed recursively.
using PickleId = uint32_t;

struct PickleValue {
  enum class Kind : uint8_t {
    None,
    Bool,
    Integer,
    Float,
    Text,
    Bytes,  // also integers beyond 64 bits, as they are stored
    Tuple,
    List,
    Dict,     // items: key, value, key, value, …
    Global,   // integer: index into the list of known names
    Storage,  // text: key, or items: its number; integer: elements; dtype
    Tensor,   // items: storage, sizes, strides; integer: offset in elements
    Opaque,   // a known value without meaning here, such as a device
  };
  Kind kind = Kind::None;
  DType dtype = DType::F32;
  int64_t integer = 0;
  std::string_view text;  // into the file
  std::vector<PickleId> items;
};

struct Pickle {
  std::vector<PickleValue> values;
  PickleId root = 0;

  const PickleValue& operator[](PickleId id) const { return values[id]; }
};

// Reads one pickle up to and including its STOP.
Pickle read_pickle(ByteReader& reader);

}  // namespace snug::files
