// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.h"
#include "files/weights/pth/zip.h"

namespace snug::files {
namespace {

using namespace zip;

constexpr uint64_t kContentAlignment = 64;
constexpr uint16_t kZipVersion = 45;  // the first with 64-bit sizes
constexpr uint64_t kLocalBytes = 30;
constexpr uint32_t kDate = 0x21;  // 1 January 1980, so that equal content gives equal files

void put16(std::string& out, uint64_t value) {
  out += static_cast<char>(value & 0xFF);
  out += static_cast<char>((value >> 8) & 0xFF);
}
void put32(std::string& out, uint64_t value) {
  put16(out, value);
  put16(out, value >> 16);
}
void put64(std::string& out, uint64_t value) {
  put32(out, value);
  put32(out, value >> 32);
}

uint64_t fit32(uint64_t value) { return std::min<uint64_t>(value, kIn64); }

// The fields from version to checksum that an entry's own header and the directory have in common.
void put_common(std::string& out, uint32_t crc, uint64_t size, size_t name_bytes) {
  put16(out, kZipVersion);
  put16(out, 0);  // flags
  put16(out, 0);  // stored
  put16(out, 0);  // time
  put16(out, kDate);
  put32(out, crc);
  put32(out, fit32(size));
  put32(out, fit32(size));
  put16(out, name_bytes);
}

// Sizes that need 64 bits, then padding up to the alignment of the content.
std::string local_extra(uint64_t header_offset, size_t name_bytes, uint64_t size) {
  std::string extra;
  if (size >= kIn64) {
    put16(extra, kZip64Field);
    put16(extra, 16);
    put64(extra, size);
    put64(extra, size);
  }
  const uint64_t unpadded = header_offset + kLocalBytes + name_bytes + extra.size() + 4;
  const uint64_t padding = (kContentAlignment - unpadded % kContentAlignment) % kContentAlignment;
  put16(extra, kPaddingField);
  put16(extra, padding);
  extra.append(padding, 'Z');
  return extra;
}

}  // namespace

void ZipWriter::add(std::string_view name, std::span<const std::byte> content) {
  SNUG_CHECK(name.size() < 65536, "a zip entry's name has {} bytes", name.size());
  const Written entry{std::string(name), file_.size(), content.size(), crc32(content)};
  std::string header;
  put32(header, kLocalSignature);
  put_common(header, entry.crc, entry.size, name.size());
  const std::string extra = local_extra(entry.header_offset, name.size(), entry.size);
  put16(header, extra.size());
  file_.append(header);
  file_.append(name);
  file_.append(extra);
  file_.append(content);
  entries_.push_back(entry);
}

void ZipWriter::append_directory_entry(std::string& out, const Written& entry) const {
  std::string extra;
  if (entry.size >= kIn64) {
    put64(extra, entry.size);
    put64(extra, entry.size);
  }
  if (entry.header_offset >= kIn64) put64(extra, entry.header_offset);
  put32(out, kDirectorySignature);
  put16(out, kZipVersion);
  put_common(out, entry.crc, entry.size, entry.name.size());
  put16(out, extra.empty() ? 0 : extra.size() + 4);
  put16(out, 0);  // comment
  put16(out, 0);  // disk
  put16(out, 0);  // attributes
  put32(out, 0);
  put32(out, fit32(entry.header_offset));
  out += entry.name;
  if (extra.empty()) return;
  put16(out, kZip64Field);
  put16(out, extra.size());
  out += extra;
}

void ZipWriter::finish() {
  const uint64_t begin = file_.size();
  std::string out;
  for (const Written& entry : entries_) append_directory_entry(out, entry);
  const uint64_t size = out.size(), count = entries_.size();
  if (begin >= kIn64 || count >= 0xFFFF) {
    put32(out, kEnd64Signature);
    put64(out, kEnd64Bytes - 12);
    put16(out, kZipVersion);
    put16(out, kZipVersion);
    put32(out, 0);  // disks
    put32(out, 0);
    put64(out, count);
    put64(out, count);
    put64(out, size);
    put64(out, begin);
    put32(out, kLocatorSignature);
    put32(out, 0);
    put64(out, begin + size);
    put32(out, 1);
  }
  put32(out, kEndSignature);
  put32(out, 0);  // disks
  put16(out, std::min<uint64_t>(count, 0xFFFF));
  put16(out, std::min<uint64_t>(count, 0xFFFF));
  put32(out, fit32(size));
  put32(out, fit32(begin));
  put16(out, 0);  // comment
  file_.append(out);
  file_.finish();
}

}  // namespace snug::files
