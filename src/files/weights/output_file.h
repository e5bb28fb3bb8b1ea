// A large file written in chunks under a temporary name and renamed when it is complete.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "files/weights/dtype.h"

namespace snug::files {

class OutputFile {
 public:
  explicit OutputFile(
      const std::filesystem::path& path);  // throws UserError: no folder, no permission
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();  // removes the temporary file unless finish() was called

  // Reserves the file's final size, so that a full disk is noticed before the work.
  void reserve(uint64_t size);
  void append(std::span<const std::byte> bytes);
  void append(std::string_view text) { append(std::as_bytes(std::span(text))); }
  void write_at(uint64_t offset, std::span<const std::byte> bytes);
  uint64_t size() const { return size_; }  // the offset of the next append()
  void finish();                           // fsync, rename, fsync of the folder

  const std::filesystem::path& path() const { return path_; }

 private:
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

// The offset of each declared tensor in a file being written, and how much of it is written.
class TensorSlots {
 public:
  void declare(const TensorInfo& tensor, uint64_t offset);  // from the start of the data
  void begin_at(uint64_t data_begin) { data_begin_ = data_begin; }
  void write(OutputFile& file, std::string_view name, std::span<const std::byte> bytes);
  void check_complete() const;

 private:
  struct Slot {
    uint64_t offset;
    uint64_t size;
    uint64_t written = 0;
  };
  std::map<std::string, Slot, std::less<>> slots_;
  uint64_t data_begin_ = 0;
};

}  // namespace snug::files
