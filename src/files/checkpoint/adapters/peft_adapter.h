// A PEFT directory: adapter_config.json with adapter_model.safetensors or, from older versions,
// adapter_model.bin, a pickle that is parsed but never executed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "files/checkpoint/adapters/adapter.h"

namespace snug::checkpoint {

// The shape in its file of a weight of the base that the adapter brings
// ("model.embed_tokens.weight"); empty: it brings none.
std::vector<int64_t> base_weight_shape(const std::filesystem::path& directory,
                                       const std::string& name);
bool is_peft_directory(const std::filesystem::path& directory);

// Reads the whole adapter, tensors in their stored type; `stacks`: all of the base's. Throws
// UserError with file and tensor for damaged, inconsistent or unsupported contents.
Adapter read_peft_adapter(const std::filesystem::path& directory,
                          const std::vector<ExpertStack>& stacks = {});

// Writes both files into an existing folder. Tensors may be on any device. Modules chosen by a
// regular expression are written as a list of names.
void write_peft_files(const std::filesystem::path& folder, const Adapter& adapter);

// Provides an adapter's tensors while it is written, one module or one base weight at a time.
struct AdapterValues {
  std::function<ModuleAdapter(const std::string& module)> module;
  std::function<at::Tensor(const std::string& parameter)> base_weight;
};

// The same with an adapter whose tensors are on meta and only give shapes and types.
void write_peft_files(const std::filesystem::path& folder, const Adapter& shapes,
                      const AdapterValues& values);

// The size of both files.
int64_t peft_bytes(const Adapter& shapes);

}  // namespace snug::checkpoint
