// Checksums of the files in a folder, in checksums.json beside them. They find damage by disks and
// copies, not forgery: XXH3, 64 bits, for every MiB of a file, so that reading a part of a file
// checks that part alone, and damage is reported with its place.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace snug::files {

inline constexpr const char* kChecksumsName = "checksums.json";
inline constexpr size_t kChecksumChunk = size_t{1} << 20;  // bytes

struct FileChecksums {
  size_t bytes = 0;
  std::vector<uint64_t> chunks;  // the last one may be shorter

  bool operator==(const FileChecksums&) const = default;
};

// Whether a reader of a file compares it with its checksums.
enum class Compare { Yes, No };

using FolderChecksums = std::map<std::string, FileChecksums>;  // by file name

// Reads a whole file, on several threads. Throws UserError.
FileChecksums checksums_of(const std::filesystem::path& file);

// Text between processes, as in checksums.json.
std::string to_text(const FolderChecksums& checksums);
FolderChecksums from_text(const std::string& text);

// Writes checksums.json for all files of the folder, subfolders left out. Those in `known` are not
// read again.
void write_checksums(const std::filesystem::path& folder, const FolderChecksums& known = {});

// About the size of a folder's checksums.json, for files of so many bytes in all.
int64_t checksums_bytes(int64_t bytes, int64_t num_files);

// The folder's checksums.json; none without one. Throws UserError if it is damaged itself.
std::optional<FolderChecksums> read_checksums(const std::filesystem::path& folder);

// Weights are many bytes, which their reader compares as it goes.
enum class Weights { BySize, ByBytes };

// What is wrong with the folder's files: "state.json is damaged", or empty. Also empty without a
// checksums.json.
std::string fault_of_files(const std::filesystem::path& folder, Weights weights = Weights::BySize);

// Compares a file with its checksums, each chunk once. Thread-safe.
class FileCheck {
 public:
  struct Range {
    size_t begin = 0, end = 0;  // bytes
  };

  explicit FileCheck(FileChecksums checksums);

  size_t expected_bytes() const { return checksums_.bytes; }
  // The first damaged chunk of those that overlap [begin, end); `file`: the whole file, of the
  // expected size. Several threads share the work.
  std::optional<Range> find_damage(std::span<const std::byte> file, size_t begin, size_t end);
  // All of them in the whole file.
  std::vector<Range> all_damage(std::span<const std::byte> file);

 private:
  bool is_whole(std::span<const std::byte> file, size_t chunk);

  FileChecksums checksums_;
  std::unique_ptr<std::atomic<bool>[]> checked_;  // by chunk: found to be whole
};

// The check of a file whose folder has checksums for it; null otherwise.
std::unique_ptr<FileCheck> find_check(const std::filesystem::path& file);

}  // namespace snug::files
