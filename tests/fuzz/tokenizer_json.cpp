// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"
#include "text/tokenizer/tokenizer.h"

// Changed copies of tokenizer.json: what is still read must split text and put it together again.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  snug::fuzz::with_file(data, size, "tokenizer.json", [](const std::filesystem::path& path) {
    const auto tokenizer = snug::tokenizer::Tokenizer::from_directory(path.parent_path());
    tokenizer->decode(tokenizer->encode("Hello, world!\n 12 grüße \xff<s>", true), false);
  });
  return 0;
}

bool snug::fuzz::change_structure(Bytes& bytes, Random& random) {
  return change_json(bytes, random);
}
