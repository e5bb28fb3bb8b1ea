// SPDX-License-Identifier: Apache-2.0
#include "files/weights/gguf/gguf.h"

#include "base/error.h"
#include "fuzz/fuzz.h"

namespace {

using snug::UserError;
using snug::files::GgufFile;

// Asks for a key as every type; most of these are refused, none may do worse.
void ask_for(const GgufFile& file, const std::string& key) {
  const auto try_to = [](auto&& get) {
    try {
      get();
    } catch (const UserError&) {
    }
  };
  try_to([&] { file.integer(key); });
  try_to([&] { file.number(key); });
  try_to([&] { file.text(key); });
  try_to([&] { file.boolean(key); });
  try_to([&] { file.texts(key); });
  try_to([&] { file.numbers(key); });
  try_to([&] { file.integers(key); });
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  snug::fuzz::with_file(data, size, [](const std::filesystem::path& path) {
    const auto file = GgufFile::open(path);
    snug::fuzz::read_everything(*file);
    for (const auto& [key, value] : file->metadata()) {
      GgufFile::show(value);
      ask_for(*file, key);
    }
  });
  return 0;
}

bool snug::fuzz::change_structure(Bytes& bytes, Random& random) {
  return change_gguf(bytes, random);
}
