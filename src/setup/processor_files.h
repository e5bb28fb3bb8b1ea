// What prepares a model's pictures outside of it, as a Hugging Face directory holds it:
// preprocessor_config.json and processor_config.json.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "models/model.h"

namespace snug::setup {

// Writes them for a model that reads pictures: those of the folder `from` as they are, or, where it
// has none, one that prepares pictures as the model does. Nothing for others.
void write_processor_files(const std::filesystem::path& folder, const models::Model& model,
                           const std::filesystem::path& from);

}  // namespace snug::setup
