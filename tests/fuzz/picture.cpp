// SPDX-License-Identifier: Apache-2.0
#include "files/pictures/picture.h"

#include "base/error.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    // Few pixels, so that a damaged header costs no seconds.
    snug::files::decode_picture(std::as_bytes(std::span(data, size)), "picture", 1 << 18);
  } catch (const snug::UserError&) {
  }
  return 0;
}
