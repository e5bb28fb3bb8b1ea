// The JSON header of a safetensors file, read event by event: a hostile one costs no more memory
// than what it validly declares, and a key that is there twice is seen.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace snug::formats {

struct SafetensorsEntry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<int64_t>> shape;
  std::optional<std::vector<int64_t>> offsets;  // begin and end within the data
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

// Throws UserError beginning with `label` where the text is not such a header.
SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& label);

}  // namespace snug::formats
