// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"
#include "support/temp_folder.h"
#include "text/tokenizer/tokenizer.h"

// Changed copies of tokenizer.json: what is still read must split text and put it together again.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const snug::test::TempFolder folder;
  snug::fuzz::with_file(data, size, [](const std::filesystem::path& path) {
    std::filesystem::remove(folder / "tokenizer.json");
    std::filesystem::create_symlink(path, folder / "tokenizer.json");
    const auto tokenizer = snug::tokenizer::Tokenizer::from_directory(folder / "");
    tokenizer->decode(tokenizer->encode("Hello, world!\n 12 grüße \xff<s>", true), false);
  });
  return 0;
}
