// A folder with an adapter, PEFT's or LitGPT's, and the base model that it belongs to.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "checkpoint/adapter.h"
#include "models/model.h"

namespace snug::setup {

// Whether the folder holds an adapter and no model beside it, as LitGPT leaves one after merging.
bool is_adapter_directory(const std::filesystem::path& directory);

// The folder or file of the base that the adapter names, on this machine: a path as it stands, a
// hub name under ./checkpoints or in the Hugging Face cache. Throws UserError saying where it
// looked.
std::filesystem::path find_base(const std::filesystem::path& directory);

// The adapter, checked against the model that it is to be added to. Throws UserError naming the
// module and both shapes where they do not suit each other.
checkpoint::Adapter read_adapter(const std::filesystem::path& directory, models::Model& base);

}  // namespace snug::setup
