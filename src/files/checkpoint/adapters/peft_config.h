// Reads and writes PEFT's adapter_config.json. Anything beyond low-rank adapters of linear layers
// is refused with the name of the key.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "files/checkpoint/adapters/adapter.h"

namespace snug::checkpoint {

// Throws UserError naming file and key.
AdapterConfig read_peft_config(const std::filesystem::path& file);

// The file's text.
std::string peft_config_text(const AdapterConfig& config);

}  // namespace snug::checkpoint
