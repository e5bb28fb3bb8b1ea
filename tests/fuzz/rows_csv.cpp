// SPDX-License-Identifier: Apache-2.0
#include "data/rows/rows.h"
#include "fuzz/fuzz.h"

// Changed rows of training data, read as CSV and as TSV.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const char* name : {"rows.csv", "rows.tsv"})
    snug::fuzz::with_file(data, size, name,
                          [](const std::filesystem::path& path) { snug::data::read_rows(path); });
  return 0;
}

bool snug::fuzz::change_structure(Bytes& bytes, Random& random) {
  return change_words(bytes, random);
}
