// Parses the JSON header of a safetensors file event by event, so that a hostile header costs
// little memory and duplicate keys are found.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace snug::files {

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

// Throws UserError, beginning with `label`, for an invalid header.
SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& label);

}  // namespace snug::files
