// SPDX-License-Identifier: Apache-2.0
#include <fstream>

#include "fuzz/fuzz.h"

namespace {

// The two files that the sample names, with a tensor of one element each.
bool write_shards(const std::filesystem::path& folder) {
  for (const char* name : {"a", "b"}) {
    const std::string header = std::string(R"({")") + name +
                               R"(": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})";
    std::ofstream file(folder / (std::string(name) + ".safetensors"), std::ios::binary);
    file << static_cast<char>(header.size()) << std::string(7, '\0') << header
         << std::string(4, '\0');
  }
  return true;
}

}  // namespace

// A changed model.safetensors.index.json, which says what file each tensor of a model is in.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  snug::fuzz::with_file(
      data, size, "model.safetensors.index.json", [](const std::filesystem::path& path) {
        [[maybe_unused]] static const bool written = write_shards(path.parent_path());
        snug::fuzz::read_everything(*snug::files::open_model_directory(path.parent_path()));
      });
  return 0;
}

bool snug::fuzz::change_structure(Bytes& bytes, Random& random) {
  return change_json(bytes, random);
}
