// SPDX-License-Identifier: Apache-2.0
#include "files/weights/safetensors/safetensors.h"

#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  snug::fuzz::with_file(data, size, [](const std::filesystem::path& path) {
    snug::fuzz::read_everything(*snug::files::open_safetensors(path));
    snug::files::read_safetensors_metadata(path);
  });
  return 0;
}

bool snug::fuzz::change_structure(Bytes& bytes, Random& random) {
  return change_safetensors(bytes, random);
}
