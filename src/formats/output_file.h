// A large file written piece by piece under a temporary name, and renamed when it is whole.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace snug::formats {

class OutputFile {
 public:
  explicit OutputFile(
      const std::filesystem::path& path);  // throws UserError: no folder, no permission
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();  // removes the temporary file unless finish() was called

  // Asks for the space now, so that a full disk shows before the work and not after it.
  void reserve(uint64_t size);
  void append(std::span<const std::byte> bytes);
  void append(std::string_view text) { append(std::as_bytes(std::span(text))); }
  void append_zeros(uint64_t count);
  void write_at(uint64_t offset, std::span<const std::byte> bytes);
  uint64_t size() const { return size_; }  // where append() goes on
  void finish();                           // fsync, rename, fsync of the folder

  const std::filesystem::path& path() const { return path_; }

 private:
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

}  // namespace snug::formats
