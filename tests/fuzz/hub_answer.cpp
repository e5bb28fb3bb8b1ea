// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "files/hub/package_index.h"
#include "files/hub/repository.h"
#include "fuzz/fuzz.h"

// Changed answers of a hub and of a package index, the latter as JSON and as HTML.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const char* address = "https://host/simple/name/";
  try {
    for (const snug::hub::RemoteFile& file : snug::hub::parse_listing(text, address).files)
      snug::hub::check_file_name(file.path, "org/name");
  } catch (const snug::UserError&) {
  }
  for (const char* type : {"application/vnd.pypi.simple.v1+json", "text/html"}) {
    try {
      snug::hub::read_index_page(text, type, address);
    } catch (const snug::UserError&) {
    }
  }
  return 0;
}

bool snug::fuzz::change_structure(Bytes& bytes, Random& random) {
  return change_json(bytes, random) || change_words(bytes, random);
}
