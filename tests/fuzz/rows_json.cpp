// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "data/pictures/caption_list.h"
#include "data/rows/rows.h"
#include "fuzz/fuzz.h"

// Changed rows of training data, read as JSON, as lines of JSON, and as captions.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    snug::data::captions_in_json({reinterpret_cast<const char*>(data), size}, "captions.json");
  } catch (const snug::UserError&) {
  }
  for (const char* name : {"rows.json", "rows.jsonl"})
    snug::fuzz::with_file(data, size, name, [](const std::filesystem::path& path) {
      snug::data::split_conversations(snug::data::read_rows(path));
    });
  return 0;
}

bool snug::fuzz::change_structure(Bytes& bytes, Random& random) {
  return change_json(bytes, random) || change_json_line(bytes, random);
}
