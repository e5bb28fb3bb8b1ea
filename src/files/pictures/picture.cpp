// SPDX-License-Identifier: Apache-2.0
#include "files/pictures/picture.h"

#include <png.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "files/pictures/picture_decoders.h"

namespace snug::files {
namespace {

// Larger than any camera's or scanner's; resizing needs tables of this length.
constexpr int64_t kMostPixelsOfASide = int64_t{1} << 20;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Names common files that are not pictures, for messages.
std::string_view other_format(std::string_view text) {
  if (text.starts_with("GIF8")) return "a GIF";
  if (text.starts_with("BM")) return "a BMP";
  if (text.starts_with(std::string_view("II*\0", 4)) ||
      text.starts_with(std::string_view("MM\0*", 4)))
    return "a TIFF";
  if (text.size() > 12 && text.substr(4, 4) == "ftyp") return "an AVIF or HEIC picture";
  if (text.starts_with("<svg") || text.starts_with("<?xml")) return "an SVG or other XML";
  if (text.starts_with("<!DOCTYPE") || text.starts_with("<html")) return "a web page";
  if (text.starts_with("version https://git-lfs")) return "a git-lfs pointer, not yet fetched";
  return "no picture";
}

DecodedPicture decode_any(std::span<const std::byte> bytes, int64_t max_pixels) {
  const std::string_view text = text_of(bytes);
  if (text.empty()) throw UserError("it is empty");
  if (text.starts_with("\xFF\xD8\xFF")) return decode_jpeg(bytes, max_pixels);
  if (text.starts_with("\x89PNG\r\n\x1A\n")) return decode_png(bytes, max_pixels);
  if (text.starts_with("RIFF") && text.size() >= 12 && text.substr(8, 4) == "WEBP")
    return decode_webp(bytes, max_pixels);
  throw UserError("it is {}; only JPEG, PNG and WebP are supported", other_format(text));
}

}  // namespace

Picture decode_picture(std::span<const std::byte> bytes, const std::string& where,
                       int64_t max_pixels) {
  try {
    DecodedPicture decoded = decode_any(bytes, max_pixels);
    turn_upright(decoded.picture, decoded.orientation);
    return std::move(decoded.picture);
  } catch (const UserError& error) {
    throw UserError("{}: {}", where, error.what());
  }
}

void check_picture_size(int64_t width, int64_t height, int64_t max_pixels) {
  if (width <= 0 || height <= 0) throw UserError("a picture of {} × {} pixels", width, height);
  if (height > max_pixels / width)
    throw UserError("{} × {} pixels are more than the {} that are decoded; make it smaller", width,
                    height, max_pixels);
  if (std::max(width, height) > kMostPixelsOfASide)
    throw UserError("{} × {} pixels: a side may have at most {}", width, height,
                    kMostPixelsOfASide);
}

void turn_upright(Picture& picture, int orientation) {
  if (orientation < 2 || orientation > 8) return;
  const int64_t width = picture.width, height = picture.height;
  // Orientations 5 to 8 swap rows and columns.
  const bool lies = orientation >= 5;
  const bool from_right =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const int64_t new_width = lies ? height : width, new_height = lies ? width : height;
  std::vector<uint8_t> turned(picture.rgb.size());
  for (int64_t y = 0; y < new_height; ++y) {
    uint8_t* out = turned.data() + y * new_width * 3;
    for (int64_t x = 0; x < new_width; ++x, out += 3) {
      const int64_t column = lies ? y : x, row = lies ? x : y;
      const int64_t from_x = from_right ? width - 1 - column : column;
      const int64_t from_y = from_bottom ? height - 1 - row : row;
      std::copy_n(picture.rgb.data() + (from_y * width + from_x) * 3, 3, out);
    }
  }
  picture = {new_width, new_height, std::move(turned)};
}

// The one field of EXIF (a small TIFF file) that changes pixels.

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

std::vector<std::byte> encode_png(const Picture& picture) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.width);
  image.height = static_cast<png_uint_32>(picture.height);
  image.format = PNG_FORMAT_RGB;
  image.flags = PNG_IMAGE_FLAG_FAST;
  const auto write = [&](void* memory, png_alloc_size_t& size) {
    if (png_image_write_to_memory(&image, memory, &size, /*convert_to_8_bit=*/0, picture.rgb.data(),
                                  /*row_stride=*/0, nullptr) == 0)
      throw InternalError(fmt::format("a picture of {} x {} could not be written: {}",
                                      picture.width, picture.height, image.message));
  };
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::vector<std::byte> bytes(size);
  write(bytes.data(), size);
  bytes.resize(size);
  return bytes;
}

}  // namespace snug::files
