// SPDX-License-Identifier: Apache-2.0
#include "files/weights/pth/pth.h"

#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  snug::fuzz::with_file(data, size, [](const std::filesystem::path& path) {
    snug::fuzz::read_everything(*snug::files::open_pth(path));
  });
  return 0;
}
