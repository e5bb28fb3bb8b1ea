// Reads from the end, as zip requires: the end record, the central directory, then each entry's own
// header, which must agree with the directory.
// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "files/weights/byte_reader.h"
#include "files/weights/pth/zip.h"

namespace snug::files {
namespace {

using namespace zip;

struct Central {
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t entries = 0;
};

struct DirectoryEntry {
  std::string name;
  uint16_t flags = 0;
  uint16_t method = 0;
  uint32_t crc = 0;
  uint64_t compressed = 0;
  uint64_t size = 0;
  uint64_t header_offset = 0;
};

uint32_t u32_at(std::span<const std::byte> file, size_t position) {
  uint32_t value;
  std::memcpy(&value, file.data() + position, sizeof(value));
  return value;
}

size_t find_end_record(std::span<const std::byte> file, const std::string& label) {
  constexpr size_t kMaxComment = 65535;
  if (file.size() >= kEndBytes) {
    const size_t last = file.size() - kEndBytes;
    for (size_t back = 0; back <= std::min(last, kMaxComment); ++back)
      if (u32_at(file, last - back) == kEndSignature) return last - back;
  }
  throw UserError(
      "{}: the end of the zip archive is missing; the file is truncated, fetch it again", label);
}

Central read_end64(std::span<const std::byte> file, const std::string& label, size_t locator) {
  ByteReader reader(file, label, locator + 8);
  const uint64_t position = reader.u64("the zip64 locator");
  if (position > locator || locator - position < kEnd64Bytes ||
      u32_at(file, position) != kEnd64Signature)
    throw UserError("{}: the zip64 end record is not where it should be; the file is damaged",
                    label);
  ByteReader end(file, label, position + 32);
  Central central;
  central.entries = end.u64("the number of entries");
  central.size = end.u64("the directory's size");
  central.offset = end.u64("the directory's offset");
  return central;
}

Central find_central(std::span<const std::byte> file, const std::string& label) {
  const size_t end = find_end_record(file, label);
  Central central;
  if (end >= kLocatorBytes && u32_at(file, end - kLocatorBytes) == kLocatorSignature) {
    central = read_end64(file, label, end - kLocatorBytes);
  } else {
    ByteReader reader(file, label, end + 10);
    central.entries = reader.u16("the number of entries");
    central.size = reader.u32("the directory's size");
    central.offset = reader.u32("the directory's offset");
  }
  if (central.offset > end || central.size > end - central.offset ||
      central.entries > central.size / kDirectoryBytes)
    throw UserError(
        "{}: its zip directory ({} entries, {} bytes from {} on) does not fit the file; "
        "the file is truncated or damaged, fetch it again",
        label, central.entries, central.size, central.offset);
  return central;
}

// Sizes and offset that do not fit 32 bits are in an extra field, in this order.
void read_zip64_field(std::span<const std::byte> extra, const std::string& label,
                      DirectoryEntry& entry) {
  ByteReader reader(extra, label);
  while (reader.remaining() >= 4) {
    const uint16_t id = reader.u16("an extra field");
    const uint16_t size = reader.u16("an extra field");
    ByteReader field(reader.take(size, "an extra field of the zip directory"), label);
    if (id != kZip64Field) continue;
    if (entry.size == kIn64) entry.size = field.u64("a 64-bit size");
    if (entry.compressed == kIn64) entry.compressed = field.u64("a 64-bit size");
    if (entry.header_offset == kIn64) entry.header_offset = field.u64("a 64-bit offset");
    return;
  }
}

DirectoryEntry read_entry(ByteReader& reader) {
  constexpr const char* kWhat = "an entry of the zip directory";
  if (reader.u32(kWhat) != kDirectorySignature)
    throw UserError("{}: no zip directory entry at byte {}; the file is damaged, fetch it again",
                    reader.label(), reader.position() - 4);
  reader.take(4, kWhat);  // versions
  DirectoryEntry entry;
  entry.flags = reader.u16(kWhat);
  entry.method = reader.u16(kWhat);
  reader.take(4, kWhat);  // time and date
  entry.crc = reader.u32(kWhat);
  entry.compressed = reader.u32(kWhat);
  entry.size = reader.u32(kWhat);
  const uint16_t name_bytes = reader.u16(kWhat);
  const uint16_t extra_bytes = reader.u16(kWhat);
  const uint16_t comment_bytes = reader.u16(kWhat);
  reader.take(8, kWhat);  // disk, attributes
  entry.header_offset = reader.u32(kWhat);
  entry.name = reader.text(name_bytes, kWhat);
  read_zip64_field(reader.take(extra_bytes, kWhat), reader.label(), entry);
  reader.take(comment_bytes, kWhat);
  return entry;
}

void refuse_unreadable(const DirectoryEntry& entry, ZipMethods allowed) {
  if ((entry.flags & kEncrypted) != 0) throw UserError("it is encrypted");
  if (allowed == ZipMethods::StoredOrDeflated && entry.method == kDeflated) return;
  if (entry.method != 0 || entry.compressed != entry.size)
    throw UserError(
        "it is compressed, which torch.save never does; save the model again with torch");
}

// The local header repeats name and sizes, which must match the directory.
ZipEntry locate(std::span<const std::byte> file, const std::string& label,
                const DirectoryEntry& entry) {
  constexpr const char* kWhat = "a zip entry's header";
  if (entry.header_offset >= file.size())
    throw UserError(
        "its header at {} is beyond the end of the file; the file is truncated or damaged",
        entry.header_offset);
  ByteReader reader(file, label, entry.header_offset);
  if (reader.u32(kWhat) != kLocalSignature)
    throw UserError("no zip entry begins at byte {}; the file is damaged", entry.header_offset);
  reader.take(2, kWhat);
  const uint16_t flags = reader.u16(kWhat);
  const uint16_t method = reader.u16(kWhat);
  reader.take(8, kWhat);  // time, date, checksum
  const uint32_t compressed = reader.u32(kWhat);
  reader.take(4, kWhat);
  const uint16_t name_bytes = reader.u16(kWhat);
  const uint16_t extra_bytes = reader.u16(kWhat);
  const bool sizes_follow = (flags & kSizesFollow) != 0 || compressed == kIn64;
  if (reader.text(name_bytes, kWhat) != entry.name || method != entry.method ||
      (!sizes_follow && compressed != entry.compressed))
    throw UserError("the zip directory and the entry's own header disagree; the file is damaged");
  reader.take(extra_bytes, kWhat);
  const size_t begin = reader.position();
  reader.take(entry.compressed, "a zip entry's content");
  return {.offset = begin,
          .size = entry.size,
          .crc = entry.crc,
          .stored = entry.compressed,
          .deflated = entry.method == kDeflated};
}

}  // namespace

uint32_t crc32(std::span<const std::byte> bytes, uint32_t previous) {
  return static_cast<uint32_t>(
      ::crc32_z(previous, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

bool looks_like_zip(std::span<const std::byte> file) {
  return file.size() >= 4 && u32_at(file, 0) == kLocalSignature;
}

ZipDirectory read_zip_directory(std::span<const std::byte> file, const std::string& label,
                                ZipMethods allowed) {
  const Central central = find_central(file, label);
  ByteReader reader(file.first(central.offset + central.size), label, central.offset);
  ZipDirectory directory;
  for (uint64_t i = 0; i < central.entries; ++i) {
    const DirectoryEntry entry = read_entry(reader);
    with_context(fmt::format("{}: \"{}\" inside it", label, printable(entry.name)), [&] {
      refuse_unreadable(entry, allowed);
      if (!directory.emplace(entry.name, locate(file, label, entry)).second)
        throw UserError("it occurs twice; the file is damaged");
    });
  }
  return directory;
}

namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

// A raw stream, without zlib's own header.
class Inflater {
 public:
  explicit Inflater(std::span<const std::byte> deflated) : rest_(deflated) {
    SNUG_CHECK(::inflateInit2(&stream_, -MAX_WBITS) == Z_OK, "zlib does not start");
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { ::inflateEnd(&stream_); }

  // The next bytes, in `buffer`; empty at the end and if the stream is damaged.
  std::span<const std::byte> next(std::span<std::byte> buffer) {
    stream_.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream_.avail_out = static_cast<uInt>(buffer.size());
    while (!done_ && stream_.avail_out > 0) {
      const size_t given = std::min(rest_.size(), kPieceBytes);
      stream_.next_in =
          const_cast<Bytef*>(reinterpret_cast<const Bytef*>(rest_.data()));  // zlib only reads it
      stream_.avail_in = static_cast<uInt>(given);
      done_ = ::inflate(&stream_, Z_NO_FLUSH) != Z_OK;
      rest_ = rest_.subspan(given - stream_.avail_in);
    }
    return buffer.first(buffer.size() - stream_.avail_out);
  }

 private:
  z_stream stream_{};
  std::span<const std::byte> rest_;
  bool done_ = false;
};

}  // namespace

void extract(std::span<const std::byte> file, const ZipEntry& entry, const std::string& label,
             OutputFile& out) {
  const std::span<const std::byte> stored = file.subspan(entry.offset, entry.stored);
  size_t size = 0;
  uint32_t crc = 0;
  const auto take = [&](std::span<const std::byte> bytes) {
    size += bytes.size();
    crc = crc32(bytes, crc);
    if (size <= entry.size) out.append(bytes);
  };
  if (entry.deflated) {
    std::vector<std::byte> buffer(kPieceBytes);
    Inflater inflater(stored);
    for (auto bytes = inflater.next(buffer); !bytes.empty() && size <= entry.size;
         bytes = inflater.next(buffer))
      take(bytes);
  } else {
    take(stored);
  }
  if (size != entry.size || crc != entry.crc)
    throw UserError("{}: its compressed data is damaged; fetch it again", label);
}

}  // namespace snug::files
