// Atomic writes of files, and read-only memory maps.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace snug {

// The whole file as text. Throws UserError naming the path (missing, a folder, unreadable, over
// max_bytes).
std::string read_file(const std::filesystem::path& path, size_t max_bytes = size_t{1} << 32);

// Writes to a temporary name beside `path`, fsyncs, renames, fsyncs the folder. On failure (full
// disk, no permission) removes the temporary file and throws UserError; `path` is never
// half-written. A device or a pipe is written to as it is, and a link's file in place of the link:
// a rename would put a file there.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Deletes files that write_file_atomically() left because its process was killed: NAME.tmp-PID of
// processes that no longer exist. Ignores files that cannot be deleted.
void remove_abandoned(const std::filesystem::path& folder);

// fsync of a file or folder by path; throws UserError on failure.
void sync_path(const std::filesystem::path& path);

// A read-only memory map. Pages are shared with the page cache and cost no private memory.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);  // throws UserError
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }
  // Tells the kernel that this range is no longer needed, so that it leaves our resident set.
  void release(size_t offset, size_t length) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::filesystem::path path_;
};

// A temporary file without a name in its folder: nothing is left even if the program is killed.

// Returns a descriptor for reading and writing, which the caller closes; -1 with errno on failure.
int open_nameless_file(const std::filesystem::path& folder);

}  // namespace snug
