// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"
#include "recipe/import/import.h"

// Changed recipes of other programs that are JSON, and DeepSpeed's settings: carried over.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  snug::fuzz::with_file(data, size, "recipe.json", [](const std::filesystem::path& path) {
    const snug::recipe::Imported imported = snug::recipe::import_file(path.string());
    snug::recipe::print_imported(imported, path.string());
  });
  return 0;
}

bool snug::fuzz::change_structure(Bytes& bytes, Random& random) {
  return change_json(bytes, random);
}
