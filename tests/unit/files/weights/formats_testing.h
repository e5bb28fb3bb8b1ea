// Helpers of the tests of weight files: the stored corpus, whole tensors as floats, broken copies.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "files/weights/safetensors/safetensors.h"
#include "files/weights/tensor_source.h"
#include "support/temp_folder.h"

namespace snug::files {

inline std::filesystem::path data_file(const std::string& name) {
  return std::filesystem::path(SNUG_SOURCE_DIR) / "tests/data/formats" / name;
}

inline std::vector<float> read_floats(const TensorSource& source, const TensorInfo& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
  source.read(tensor, DType::F32, values.data());
  return values;
}

// Bit for bit, so that a -0 or a wrong last bit shows.
inline void expect_same_bits(const std::vector<float>& actual, const std::vector<float>& expected,
                             const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
        << what << " at " << i << ": " << actual[i] << ", expected " << expected[i];
}

// Same names, shapes and values as in the file that holds what another library read.
inline void expect_same_tensors(const TensorSource& actual, const std::string& expected_file) {
  const auto expected = open_safetensors(data_file(expected_file));
  ASSERT_EQ(actual.tensors().size(), expected->tensors().size());
  for (const TensorInfo& wanted : expected->tensors()) {
    const TensorInfo* found = actual.find(wanted.name);
    ASSERT_NE(found, nullptr) << wanted.name;
    EXPECT_EQ(found->shape, wanted.shape) << wanted.name;
    expect_same_bits(read_floats(actual, *found), read_floats(*expected, wanted), wanted.name);
  }
}

// Runs `work`, which must throw UserError, and checks that its text has every one of `parts`.
template <class Work>
void expect_refused(Work&& work, const std::vector<std::string>& parts) {
  try {
    work();
    ADD_FAILURE() << "not refused; expected: " << ::testing::PrintToString(parts);
  } catch (const UserError& error) {
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "missing \"" << part << "\" in: " << error.what();
  }
}

inline std::filesystem::path write_text(const test::TempFolder& folder, const std::string& name,
                                        std::string_view content) {
  write_file_atomically(folder / name, content);
  return folder / name;
}

// A file in memory, for tests that make thousands of them.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content) : descriptor_(::memfd_create("test", 0)) {
    if (::write(descriptor_, content.data(), content.size()) !=
        static_cast<ssize_t>(content.size()))
      throw std::runtime_error("cannot write a file in memory");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

template <class T>
std::string as_bytes(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

inline std::span<const std::byte> bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace snug::files
