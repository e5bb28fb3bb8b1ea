// The part of the zip format that torch.save uses (uncompressed entries, 64-bit sizes), and
// extraction of deflated entries, for Python wheels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/weights/output_file.h"

namespace snug::files {

struct ZipEntry {
  size_t offset = 0;  // of the content, from the start of the file
  size_t size = 0;
  uint32_t crc = 0;
  size_t stored = 0;  // bytes in the archive; equal to size if not deflated
  bool deflated = false;
};
using ZipDirectory = std::map<std::string, ZipEntry, std::less<>>;

bool looks_like_zip(std::span<const std::byte> file);

// Checks that every entry's content is inside the file. Throws UserError, beginning with `label`,
// for archives that are damaged, encrypted, inconsistent, or compressed by a method not allowed.
enum class ZipMethods { Stored, StoredOrDeflated };
ZipDirectory read_zip_directory(std::span<const std::byte> file, const std::string& label,
                                ZipMethods allowed = ZipMethods::Stored);

// Appends the entry's content, inflated, to `out`. Throws UserError, beginning with `label`, if the
// content does not match the directory.
void extract(std::span<const std::byte> file, const ZipEntry& entry, const std::string& label,
             OutputFile& out);

// Writes entries one after another, content aligned to 64 bytes as in torch.
class ZipWriter {
 public:
  explicit ZipWriter(const std::filesystem::path& path) : file_(path) {}
  void add(std::string_view name, std::span<const std::byte> content);
  void add(std::string_view name, std::string_view content) {
    add(name, std::as_bytes(std::span(content)));
  }
  void finish();

 private:
  struct Written {
    std::string name;
    uint64_t header_offset;
    uint64_t size;
    uint32_t crc;
  };
  void append_directory_entry(std::string& out, const Written& entry) const;

  OutputFile file_;
  std::vector<Written> entries_;
};

// The checksum of zip files (CRC-32), which torch checks on loading. Continues from `previous`.
uint32_t crc32(std::span<const std::byte> bytes, uint32_t previous = 0);

// Constants of the zip format (PKWARE's APPNOTE) for reader and writer.
namespace zip {

inline constexpr uint32_t kLocalSignature = 0x04034b50;
inline constexpr uint32_t kDirectorySignature = 0x02014b50;
inline constexpr uint32_t kEndSignature = 0x06054b50;
inline constexpr uint32_t kEnd64Signature = 0x06064b50;
inline constexpr uint32_t kLocatorSignature = 0x07064b50;

inline constexpr size_t kDirectoryBytes = 46;  // without name, extra and comment
inline constexpr size_t kEndBytes = 22;
inline constexpr size_t kEnd64Bytes = 56;
inline constexpr size_t kLocatorBytes = 20;

inline constexpr uint16_t kDeflated = 8;          // method
inline constexpr uint16_t kEncrypted = 1;         // flag
inline constexpr uint16_t kSizesFollow = 1 << 3;  // flag: sizes follow the content
inline constexpr uint16_t kZip64Field = 1;        // extra field
inline constexpr uint16_t kPaddingField = 0x4246;
inline constexpr uint32_t kIn64 = 0xFFFFFFFF;  // the number is in the zip64 field

}  // namespace zip
}  // namespace snug::files
