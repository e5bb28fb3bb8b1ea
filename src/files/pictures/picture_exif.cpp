// The one field of EXIF (a small TIFF file) that changes pixels.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "files/pictures/picture_decoders.h"

namespace snug::files {
namespace {

constexpr unsigned kOrientationTag = 0x0112;

class TiffBytes {
 public:
  TiffBytes(std::span<const uint8_t> bytes, bool big_endian)
      : bytes_(bytes), big_endian_(big_endian) {}

  bool has(size_t at, size_t length) const {
    return at <= bytes_.size() && length <= bytes_.size() - at;
  }
  // A number of `length` bytes, which must exist.
  uint32_t number(size_t at, size_t length) const {
    uint32_t value = 0;
    for (size_t i = 0; i < length; ++i)
      value = value << 8 | bytes_[at + (big_endian_ ? i : length - 1 - i)];
    return value;
  }

 private:
  std::span<const uint8_t> bytes_;
  bool big_endian_;
};

// The value of an entry of 12 bytes: tag, type, count, value.
int orientation_value(const TiffBytes& tiff, size_t entry) {
  const uint32_t type = tiff.number(entry + 2, 2);
  const size_t length = type == 1 ? 1 : type == 3 ? 2 : type == 4 ? 4 : 0;  // BYTE, SHORT, LONG
  if (length == 0 || tiff.number(entry + 4, 4) != 1) return 0;
  return static_cast<int>(std::min<uint32_t>(tiff.number(entry + 8, length), 255));
}

}  // namespace

int exif_orientation(std::span<const uint8_t> exif) {
  constexpr std::string_view kMark("Exif\0\0", 6);
  const std::string_view text(reinterpret_cast<const char*>(exif.data()), exif.size());
  if (text.starts_with(kMark)) exif = exif.subspan(kMark.size());
  if (exif.size() < 8) return 0;
  const bool big_endian = exif[0] == 'M' && exif[1] == 'M';
  if (!big_endian && !(exif[0] == 'I' && exif[1] == 'I')) return 0;
  const TiffBytes tiff(exif, big_endian);
  const size_t directory = tiff.number(4, 4);
  if (!tiff.has(directory, 2)) return 0;
  const size_t count = tiff.number(directory, 2);
  for (size_t i = 0; i < count; ++i) {
    const size_t entry = directory + 2 + 12 * i;
    if (!tiff.has(entry, 12)) return 0;
    if (tiff.number(entry, 2) == kOrientationTag) return orientation_value(tiff, entry);
  }
  return 0;
}

int xmp_orientation(std::string_view xmp) {
  // As an attribute, tiff:Orientation="6", or as an element, <tiff:Orientation>6<.
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = xmp.find(kName); at != std::string_view::npos; at = xmp.find(kName, at + 1)) {
    std::string_view rest = xmp.substr(at + kName.size());
    if (rest.starts_with("=\""))
      rest.remove_prefix(2);
    else if (rest.starts_with(">"))
      rest.remove_prefix(1);
    else
      continue;
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') return rest[0] - '0';
  }
  return 0;
}

}  // namespace snug::files
