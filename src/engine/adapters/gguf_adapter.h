// Writes a LoRA adapter as the GGUF file that llama.cpp loads beside a GGUF file of its base model.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>

#include "files/checkpoint/adapters/adapter.h"
#include "models/family.h"

namespace snug::engine {

// `directory`: where the adapter was read, for messages. Throws UserError for what such a file
// cannot hold: DoRA, layers that read pictures, trained base weights, and the adapter of a head
// that is the embedding.
void export_gguf_adapter(const std::filesystem::path& file, const models::Checkpoint& base,
                         const checkpoint::Adapter& adapter, const std::filesystem::path& directory,
                         at::ScalarType type);

}  // namespace snug::engine
