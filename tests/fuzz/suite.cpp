// SPDX-License-Identifier: Apache-2.0
#include "lab/suite/suite.h"

#include "fuzz/fuzz.h"

// Changed copies of recipes/lab/*.yaml; a suite called mine whose paths are absolute gets past its
// name and its files.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  snug::fuzz::with_file(data, size, "mine.yaml", [](const std::filesystem::path& file) {
    const snug::lab::Suite suite = snug::lab::read_suite(file);
    snug::lab::chosen_rows(suite, "*");
  });
  return 0;
}

bool snug::fuzz::change_structure(Bytes& bytes, Random& random) {
  return change_words(bytes, random);
}
