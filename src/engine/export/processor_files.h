// The picture processor's files in a Hugging Face directory: preprocessor_config.json and
// processor_config.json.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "models/model.h"

namespace snug::engine {

// For a model that reads pictures: copies the files from `from`, or writes new ones if it has none.
// Does nothing for other models.
void write_processor_files(const std::filesystem::path& folder, const models::Model& model,
                           const std::filesystem::path& from);

}  // namespace snug::engine
