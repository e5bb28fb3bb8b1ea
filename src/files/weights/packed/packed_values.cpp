// SPDX-License-Identifier: Apache-2.0
#include "files/weights/packed/packed_values.h"

#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "files/weights/convert.h"
#include "files/weights/packed/layouts.h"

namespace snug::files {

void PackedPart::numbers(int64_t begin, int64_t count, float* out) const {
  to_f32(info.dtype, bytes + bytes_for(info.dtype, begin), out, count);
}

float PackedPart::number(int64_t index) const {
  float value = 0;
  numbers(index, 1, &value);
  return value;
}

int32_t PackedPart::word(int64_t index) const {
  int32_t value = 0;
  std::memcpy(&value, bytes + index * static_cast<int64_t>(sizeof(value)), sizeof(value));
  return value;
}

std::string PackedPart::shown() const { return printable(info.name); }

const PackedPart* ModuleParts::find(const std::string& part) const {
  const auto found = parts_.find(part);
  return found == parts_.end() ? nullptr : &found->second;
}

const PackedPart& ModuleParts::operator[](const std::string& part) const {
  const PackedPart* found = find(part);
  if (found == nullptr) throw UserError("its tensor \"{}\" is missing", part);
  return *found;
}

}  // namespace snug::files
