// A PEFT directory: adapter_config.json with adapter_model.safetensors or, from older versions,
// adapter_model.bin, whose pickle is read without being executed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "checkpoint/adapter.h"

namespace snug::checkpoint {

bool is_peft_directory(const std::filesystem::path& directory);

// The whole adapter in memory, tensors in the type that they are stored in. Throws UserError naming
// the file and the tensor for what is damaged, does not fit together or cannot be honoured.
Adapter read_peft_adapter(const std::filesystem::path& directory);

// Both files, into a folder that exists. Tensors on any device. Modules chosen by an expression are
// written by their names.
void write_peft_files(const std::filesystem::path& folder, const Adapter& adapter);

// Where an adapter's tensors come from while it is written: those of one module, or one weight of
// the base, at a time.
struct AdapterValues {
  std::function<ModuleAdapter(const std::string& module)> module;
  std::function<at::Tensor(const std::string& parameter)> base_weight;
};

// The same of an adapter whose own tensors only say their shapes and types (on meta).
void write_peft_files(const std::filesystem::path& folder, const Adapter& shapes,
                      const AdapterValues& values);

// How large both files are.
int64_t peft_bytes(const Adapter& shapes);

}  // namespace snug::checkpoint
