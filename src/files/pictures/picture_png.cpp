// PNG through libpng. Grey and palettes are converted to RGB here, since libpng would scale 16-bit
// grey where Pillow clips it. Errors use longjmp; see picture_jpeg.cpp. Other chunks (text,
// profiles) are not decoded, since a few bytes may decompress to gigabytes; only orientation and
// transparency are read from the chunks themselves. Transparent pixels are blended onto white.
// SPDX-License-Identifier: Apache-2.0
#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>

#include "base/error.h"
#include "files/pictures/picture_decoders.h"

namespace snug::files {
namespace {

struct PngDecoder {
  std::span<const std::byte> bytes;
  size_t at = 0;
  char message[200] = {};
  std::jmp_buf on_error{};
  png_structp png = nullptr;
  png_infop info = nullptr;
  int passes = 1;  // 7 of an interlaced picture

  PngDecoder() = default;
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;
  ~PngDecoder() { png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void leave(png_structp png, png_const_charp message) {
  auto& decoder = *static_cast<PngDecoder*>(png_get_error_ptr(png));
  std::snprintf(decoder.message, sizeof decoder.message, "%s", message);
  std::longjmp(decoder.on_error, 1);
}

void ignore_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep out, size_t count) {
  auto& decoder = *static_cast<PngDecoder*>(png_get_io_ptr(png));
  if (count > decoder.bytes.size() - decoder.at) png_error(png, "the file is cut short");
  std::memcpy(out, decoder.bytes.data() + decoder.at, count);
  decoder.at += count;
}

bool read_header(PngDecoder& decoder) {
  if (setjmp(decoder.on_error) != 0) return false;
  decoder.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoder, leave, ignore_warning);
  if (decoder.png == nullptr) return false;
  decoder.info = png_create_info_struct(decoder.png);
  if (decoder.info == nullptr) return false;
  png_set_read_fn(decoder.png, &decoder, read_bytes);
  // We check sizes ourselves. Skipped chunks may have any length.
  png_set_user_limits(decoder.png, 0x7FFFFFFF, 0x7FFFFFFF);
  png_set_chunk_malloc_max(decoder.png, 0);
  // A negative count means all chunks but the header, palette, pixels and end.
  png_set_keep_unknown_chunks(decoder.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_read_info(decoder.png, decoder.info);
  return true;
}

// Sets up rows with one byte per sample, except 16-bit grey.
bool prepare_rows(PngDecoder& decoder) {
  if (setjmp(decoder.on_error) != 0) return false;
  png_set_packing(decoder.png);
  if (png_get_color_type(decoder.png, decoder.info) != PNG_COLOR_TYPE_GRAY)
    png_set_strip_16(decoder.png);
  decoder.passes = png_set_interlace_handling(decoder.png);
  png_read_update_info(decoder.png, decoder.info);
  return true;
}

bool read_rows(PngDecoder& decoder, uint8_t* rows, size_t row_bytes, size_t count) {
  if (setjmp(decoder.on_error) != 0) return false;
  for (int pass = 0; pass < decoder.passes; ++pass)
    for (size_t y = 0; y < count; ++y) png_read_row(decoder.png, rows + y * row_bytes, nullptr);
  return true;
}

[[noreturn]] void refuse(const PngDecoder& decoder) {
  throw UserError("not a readable PNG: {}",
                  decoder.message[0] != 0 ? decoder.message : "out of memory");
}

// The XML of an XMP iTXt chunk; if compressed, at most the first MiB.
std::optional<std::string> xmp_in(std::string_view chunk) {
  constexpr std::string_view kKeyword("XML:com.adobe.xmp\0", 18);
  constexpr size_t kMostBytes = size_t{1} << 20;
  if (!chunk.starts_with(kKeyword) || chunk.size() < kKeyword.size() + 2) return std::nullopt;
  const bool compressed = chunk[kKeyword.size()] != 0;
  chunk.remove_prefix(kKeyword.size() + 2);  // compression flag and method
  for (int i = 0; i < 2; ++i) {              // language, translated keyword
    const size_t end = chunk.find('\0');
    if (end == std::string_view::npos) return std::nullopt;
    chunk.remove_prefix(end + 1);
  }
  if (!compressed) return std::string(chunk.substr(0, kMostBytes));
  std::string text(kMostBytes, '\0');
  uLongf size = kMostBytes;
  // If the text is damaged or longer, the part that was decompressed is used.
  uncompress(reinterpret_cast<Bytef*>(text.data()), &size,
             reinterpret_cast<const Bytef*>(chunk.data()), chunk.size());
  text.resize(size);
  return text;
}

// Data besides the pixels.
struct Extras {
  int orientation = 0;                   // EXIF's, else the first XMP's; 0: none
  std::span<const uint8_t> transparent;  // tRNS: opacities of the palette, or one clear colour
};

Extras extras_in(std::span<const std::byte> file) {
  constexpr size_t kSignature = 8, kAround = 12;  // length, kind and checksum of a chunk
  const auto* bytes = reinterpret_cast<const uint8_t*>(file.data());
  Extras extras;
  std::optional<std::string> xmp;
  for (size_t at = kSignature; file.size() - at >= kAround;) {
    const size_t length = png_get_uint_32(bytes + at);
    if (length > file.size() - at - kAround) break;
    const std::string_view kind(reinterpret_cast<const char*>(bytes + at + 4), 4);
    const std::span<const uint8_t> data(bytes + at + 8, length);
    if (kind == "IEND") break;
    if (kind == "eXIf" && extras.orientation == 0) extras.orientation = exif_orientation(data);
    if (kind == "iTXt" && !xmp)
      xmp = xmp_in({reinterpret_cast<const char*>(data.data()), data.size()});
    if (kind == "tRNS") extras.transparent = data;
    at += kAround + length;
  }
  if (xmp && extras.orientation == 0) extras.orientation = xmp_orientation(*xmp);
  return extras;
}

using Palette = std::array<std::array<uint8_t, 3>, 256>;

// The palette blended onto white.
Palette palette_of(const PngDecoder& decoder, std::span<const uint8_t> opacities) {
  Palette palette{};
  png_colorp colours = nullptr;
  int count = 0;
  png_get_PLTE(decoder.png, decoder.info, &colours, &count);
  for (size_t i = 0; i < palette.size(); ++i) {
    const png_color colour = static_cast<int>(i) < count ? colours[i] : png_color{};
    const uint32_t alpha = i < opacities.size() ? opacities[i] : 255;
    palette[i] = {on_white(colour.red, alpha), on_white(colour.green, alpha),
                  on_white(colour.blue, alpha)};
  }
  return palette;
}

// The transparent colour: Pillow compares the last byte of each sample in tRNS.
std::optional<std::array<uint8_t, 3>> clear_colour(std::span<const uint8_t> transparent,
                                                   int colour_type, int bit_depth) {
  if (colour_type == PNG_COLOR_TYPE_GRAY && transparent.size() == 2) {
    const uint8_t value = bit_depth > 1 ? transparent[1] : transparent[1] != 0 ? 255 : 0;
    return {{value, value, value}};
  }
  if (colour_type == PNG_COLOR_TYPE_RGB && transparent.size() == 6)
    return {{transparent[1], transparent[3], transparent[5]}};
  return std::nullopt;
}

// 1 to 4 bits are scaled to the whole range; 16 bits are clipped at 255, as in Pillow.
uint8_t grey_value(const uint8_t* sample, int bit_depth) {
  if (bit_depth == 16) return sample[0] == 0 ? sample[1] : 255;
  return static_cast<uint8_t>(sample[0] * (255 / ((1 << bit_depth) - 1)));
}

struct Samples {
  int colour_type, bit_depth;
  Palette palette;
  std::optional<std::array<uint8_t, 3>> clear;
};

// Converts a row of samples to RGB, blended onto white.
void write_row(const uint8_t* row, const Samples& samples, int64_t width, uint8_t* rgb) {
  for (int64_t x = 0; x < width; ++x, rgb += 3) {
    switch (samples.colour_type) {
      case PNG_COLOR_TYPE_PALETTE:
        std::copy_n(samples.palette[*row++].data(), 3, rgb);
        continue;
      case PNG_COLOR_TYPE_GRAY_ALPHA:
        std::fill_n(rgb, 3, on_white(row[0], row[1]));
        row += 2;
        continue;
      case PNG_COLOR_TYPE_RGB_ALPHA:
        for (int c = 0; c < 3; ++c) rgb[c] = on_white(row[c], row[3]);
        row += 4;
        continue;
      case PNG_COLOR_TYPE_RGB:
        std::copy_n(row, 3, rgb);
        row += 3;
        break;
      default:
        std::fill_n(rgb, 3, grey_value(row, samples.bit_depth));
        row += samples.bit_depth == 16 ? 2 : 1;
    }
    if (samples.clear && std::equal(rgb, rgb + 3, samples.clear->data())) std::fill_n(rgb, 3, 255);
  }
}

}  // namespace

DecodedPicture decode_png(std::span<const std::byte> bytes, int64_t max_pixels) {
  PngDecoder decoder;
  decoder.bytes = bytes;
  if (!read_header(decoder)) refuse(decoder);
  const int64_t width = png_get_image_width(decoder.png, decoder.info);
  const int64_t height = png_get_image_height(decoder.png, decoder.info);
  check_picture_size(width, height, max_pixels);
  const int bit_depth = png_get_bit_depth(decoder.png, decoder.info);
  const int colour_type = png_get_color_type(decoder.png, decoder.info);
  if (!prepare_rows(decoder)) refuse(decoder);
  const Extras extras = extras_in(bytes);
  const Samples samples{colour_type, bit_depth, palette_of(decoder, extras.transparent),
                        clear_colour(extras.transparent, colour_type, bit_depth)};
  DecodedPicture decoded;
  decoded.orientation = extras.orientation;
  decoded.picture = {width, height, std::vector<uint8_t>(static_cast<size_t>(width * height * 3))};
  const size_t row_bytes = png_get_rowbytes(decoder.png, decoder.info);
  // All rows at once if interlaced, else one by one.
  const size_t at_once = decoder.passes > 1 ? static_cast<size_t>(height) : 1;
  std::vector<uint8_t> rows(row_bytes * at_once);
  for (size_t y = 0; y < static_cast<size_t>(height); ++y) {
    if (y % at_once == 0 && !read_rows(decoder, rows.data(), row_bytes, at_once)) refuse(decoder);
    write_row(rows.data() + y % at_once * row_bytes, samples, width,
              decoded.picture.rgb.data() + y * static_cast<size_t>(width) * 3);
  }
  return decoded;
}

}  // namespace snug::files
