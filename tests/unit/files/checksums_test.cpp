// Damage anywhere in a file is found, with its place, and by whoever reads that place.
// SPDX-License-Identifier: Apache-2.0
#include "files/checksums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/files.h"
#include "files/weights/safetensors/safetensors.h"
#include "support/temp_folder.h"

namespace snug::files {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

void flip_bit(const fs::path& file, size_t byte, int bit = 0) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(byte));
  const int value = stream.get();
  stream.seekp(static_cast<std::streamoff>(byte));
  stream.put(static_cast<char>(value ^ (1 << bit)));
}

std::string bytes_of_length(size_t length) {
  std::string text(length, '\0');
  for (size_t i = 0; i < length; ++i) text[i] = static_cast<char>(i * 2654435761U >> 13);
  return text;
}

// Two tensors, the second of several chunks.
fs::path write_model(const fs::path& folder) {
  const std::vector<TensorInfo> tensors = {make_tensor_info("small", DType::F32, {100}),
                                           make_tensor_info("large", DType::F32, {2500, 1000})};
  const fs::path file = folder / "model.safetensors";
  SafetensorsWriter writer(file, tensors);
  for (const TensorInfo& tensor : tensors) {
    const std::string bytes = bytes_of_length(static_cast<size_t>(tensor.nbytes));
    writer.write(tensor.name, std::as_bytes(std::span(bytes)));
  }
  writer.finish();
  write_file_atomically(folder / "config.json", "{\"hidden_size\": 64}\n");
  write_checksums(folder);
  return file;
}

std::vector<float> read(const TensorSource& source, const char* name, int64_t begin,
                        int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  source.read(*source.find(name), DType::F32, values.data(), begin, count);
  return values;
}

TEST(Checksums, EveryFlippedBitOfAFileIsFound) {
  const test::TempFolder folder;
  const fs::path file = folder / "file";
  for (const size_t length : {size_t{1}, kChecksumChunk, kChecksumChunk + 1}) {
    write_file_atomically(file, bytes_of_length(length));
    const FileChecksums checksums = checksums_of(file);
    EXPECT_EQ(checksums, checksums_of(file));
    for (const size_t byte : {size_t{0}, length / 2, length - 1}) {
      flip_bit(file, byte, 7);
      const MappedFile mapped(file);
      const auto ranges = FileCheck(checksums).all_damage(mapped.bytes());
      ASSERT_EQ(ranges.size(), 1U);
      EXPECT_LE(ranges[0].begin, byte);
      EXPECT_GT(ranges[0].end, byte);
      flip_bit(file, byte, 7);
      EXPECT_TRUE(FileCheck(checksums).all_damage(MappedFile(file).bytes()).empty());
    }
  }
}

TEST(Checksums, ReadingTellsOfDamageWhereItReads) {
  const test::TempFolder folder;
  const fs::path file = write_model(folder.path());
  const size_t end = fs::file_size(file);
  flip_bit(file, end - 5);
  const auto source = open_safetensors(file);
  EXPECT_NO_THROW(read(*source, "large", 0, 1000)) << "another chunk";
  EXPECT_THAT([&] { read(*source, "large", 2'499'000, 1000); },
              ThrowsMessage<UserError>(HasSubstr("\"large\" or its neighbours is not as it was")));
  EXPECT_THAT([&] { source->raw(*source->find("large")); }, testing::Throws<UserError>());
  EXPECT_THAT(source->names_between(end - 5, end - 4), ElementsAre("large"));
}

TEST(Checksums, TheHeaderAndTheSizeAreCheckedWhenAFileIsOpened) {
  const test::TempFolder folder;
  const fs::path file = write_model(folder.path());
  fs::copy(folder.path(), folder / "copy");
  // A digit of a shape or an offset, or a letter of a name.
  flip_bit(file, 8 + 4);
  EXPECT_THROW(open_safetensors(file), UserError);
  std::ofstream(folder / "copy/model.safetensors", std::ios::app) << "more";
  EXPECT_THROW(open_safetensors(folder / "copy/model.safetensors"), UserError);
}

TEST(Checksums, SmallFilesAreNamed) {
  const test::TempFolder folder;
  const fs::path file = write_model(folder.path());
  EXPECT_EQ(fault_of_files(folder.path()), "");
  flip_bit(file, fs::file_size(file) - 1);
  EXPECT_EQ(fault_of_files(folder.path()), "") << "weights are checked when they are read";
  flip_bit(folder / "config.json", 3);
  EXPECT_EQ(fault_of_files(folder.path()), "config.json is damaged");
  fs::remove(folder / "config.json");
  EXPECT_EQ(fault_of_files(folder.path()), "config.json is missing");
}

TEST(Checksums, TheirOwnFileIsCheckedToo) {
  const test::TempFolder folder;
  write_model(folder.path());
  const fs::path file = folder / kChecksumsName;
  const std::string whole = read_file(file);
  for (const std::string_view place : {"\"bytes\": ", "\"xxh3\": [", "\"this_file\": \"", "{"}) {
    write_file_atomically(file, whole);
    flip_bit(file, whole.find(place) + place.size() + (place == "{" ? 3 : 5));
    if (read_file(file).find("\"about\"") == std::string::npos) continue;  // the explanation alone
    EXPECT_THAT([&] { read_checksums(folder.path()); },
                ThrowsMessage<UserError>(HasSubstr("is damaged itself")))
        << place;
  }
  for (const char* text : {"", "[]", "{\"files\": {}}", "{\"files\": 3, \"this_file\": \"0\"}"}) {
    write_file_atomically(file, text);
    EXPECT_THROW(read_checksums(folder.path()), UserError) << text;
  }
}

}  // namespace
}  // namespace snug::files
