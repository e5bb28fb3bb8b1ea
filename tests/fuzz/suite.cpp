// SPDX-License-Identifier: Apache-2.0
#include "lab/suite/suite.h"

#include "fuzz/fuzz.h"
#include "support/temp_folder.h"

// Changed copies of recipes/lab/*.yaml; a suite called mine whose paths are absolute gets past its
// name and its files.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const snug::test::TempFolder folder;
  snug::fuzz::with_file(data, size, [](const std::filesystem::path& path) {
    const std::filesystem::path file = folder / "mine.yaml";
    std::filesystem::remove(file);
    std::filesystem::create_symlink(path, file);
    const snug::lab::Suite suite = snug::lab::read_suite(file);
    snug::lab::chosen_rows(suite, "*");
  });
  return 0;
}
