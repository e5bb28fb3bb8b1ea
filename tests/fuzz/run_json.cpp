// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"
#include "report/run_page.h"

// Changed copies of a run's record, from which a run is resumed and a page is made.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  snug::fuzz::with_file(data, size, [](const std::filesystem::path& path) {
    snug::report::RunRecord record = snug::report::read_run_json(path);
    snug::report::run_json(record);
    snug::report::report_html(record);
  });
  return 0;
}

bool snug::fuzz::change_structure(Bytes& bytes, Random& random) {
  return change_json(bytes, random);
}
