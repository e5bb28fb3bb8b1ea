// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "files/weights/pth/crc32.h"
#include "files/weights/pth/zip.h"

namespace snug::files {
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
