// SPDX-License-Identifier: Apache-2.0
#include "files/pictures/picture.h"

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

}  // namespace snug::files
