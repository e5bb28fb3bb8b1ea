// PNG through libpng, whose rows of grey and of palettes are made RGB here: its own conversions
// would scale 16-bit grey where Pillow clips it. Errors leave by longjmp; see picture_jpeg.cpp. All
// that stands beside the pixels (text, profiles) is passed over unread, since a few bytes of it may
// unpack to gigabytes; only how the picture is to be held is sought, in the chunks themselves.
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
#include "formats/picture_decoders.h"

namespace snug::formats {
namespace {

struct Decoder {
  std::span<const std::byte> bytes;
  size_t at = 0;
  char message[200] = {};
  std::jmp_buf on_error{};
  png_structp png = nullptr;
  png_infop info = nullptr;
  int passes = 1;  // 7 of an interlaced picture

  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() { png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void leave(png_structp png, png_const_charp message) {
  auto& decoder = *static_cast<Decoder*>(png_get_error_ptr(png));
  std::snprintf(decoder.message, sizeof decoder.message, "%s", message);
  std::longjmp(decoder.on_error, 1);
}

void ignore_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep out, size_t count) {
  auto& decoder = *static_cast<Decoder*>(png_get_io_ptr(png));
  if (count > decoder.bytes.size() - decoder.at) png_error(png, "the file is cut short");
  std::memcpy(out, decoder.bytes.data() + decoder.at, count);
  decoder.at += count;
}

bool read_header(Decoder& decoder) {
  if (setjmp(decoder.on_error) != 0) return false;
  decoder.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoder, leave, ignore_warning);
  if (decoder.png == nullptr) return false;
  decoder.info = png_create_info_struct(decoder.png);
  if (decoder.info == nullptr) return false;
  png_set_read_fn(decoder.png, &decoder, read_bytes);
  // Sizes are checked by us. A chunk that is passed over may be as long as it likes.
  png_set_user_limits(decoder.png, 0x7FFFFFFF, 0x7FFFFFFF);
  png_set_chunk_malloc_max(decoder.png, 0);
  // A negative count: all but the header, palette, pixels and end.
  png_set_keep_unknown_chunks(decoder.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_read_info(decoder.png, decoder.info);
  return true;
}

// Makes rows of a byte a sample, but for grey of 16 bits, and without transparency.
bool prepare_rows(Decoder& decoder) {
  if (setjmp(decoder.on_error) != 0) return false;
  png_set_packing(decoder.png);
  if (png_get_color_type(decoder.png, decoder.info) != PNG_COLOR_TYPE_GRAY)
    png_set_strip_16(decoder.png);
  png_set_strip_alpha(decoder.png);
  decoder.passes = png_set_interlace_handling(decoder.png);
  png_read_update_info(decoder.png, decoder.info);
  return true;
}

bool read_rows(Decoder& decoder, uint8_t* rows, size_t row_bytes, size_t count) {
  if (setjmp(decoder.on_error) != 0) return false;
  for (int pass = 0; pass < decoder.passes; ++pass)
    for (size_t y = 0; y < count; ++y) png_read_row(decoder.png, rows + y * row_bytes, nullptr);
  return true;
}

[[noreturn]] void refuse(const Decoder& decoder) {
  throw UserError("not a readable PNG: {}",
                  decoder.message[0] != 0 ? decoder.message : "out of memory");
}

// The XML in an iTXt chunk that is XMP's; of a compressed one the first MiB at most.
std::optional<std::string> xmp_in(std::string_view chunk) {
  constexpr std::string_view kKeyword("XML:com.adobe.xmp\0", 18);
  constexpr size_t kMostBytes = size_t{1} << 20;
  if (!chunk.starts_with(kKeyword) || chunk.size() < kKeyword.size() + 2) return std::nullopt;
  const bool compressed = chunk[kKeyword.size()] != 0;
  chunk.remove_prefix(kKeyword.size() + 2);  // whether compressed, and how
  for (int i = 0; i < 2; ++i) {              // language, translated keyword
    const size_t end = chunk.find('\0');
    if (end == std::string_view::npos) return std::nullopt;
    chunk.remove_prefix(end + 1);
  }
  if (!compressed) return std::string(chunk.substr(0, kMostBytes));
  std::string text(kMostBytes, '\0');
  uLongf size = kMostBytes;
  // Of text that is damaged or goes on, what came out of it counts.
  uncompress(reinterpret_cast<Bytef*>(text.data()), &size,
             reinterpret_cast<const Bytef*>(chunk.data()), chunk.size());
  text.resize(size);
  return text;
}

// EXIF's, or else that of the first XMP.
int orientation_in(std::span<const std::byte> file) {
  constexpr size_t kSignature = 8, kAround = 12;  // length, kind and checksum of a chunk
  const auto* bytes = reinterpret_cast<const uint8_t*>(file.data());
  std::optional<std::string> xmp;
  for (size_t at = kSignature; file.size() - at >= kAround;) {
    const size_t length = png_get_uint_32(bytes + at);
    if (length > file.size() - at - kAround) break;
    const std::string_view kind(reinterpret_cast<const char*>(bytes + at + 4), 4);
    const std::span<const uint8_t> data(bytes + at + 8, length);
    if (kind == "eXIf") {
      if (const int found = exif_orientation(data); found > 0) return found;
    } else if (kind == "iTXt" && !xmp) {
      xmp = xmp_in({reinterpret_cast<const char*>(data.data()), data.size()});
    }
    at += kAround + length;
  }
  return xmp ? xmp_orientation(*xmp) : 0;
}

using Palette = std::array<std::array<uint8_t, 3>, 256>;

Palette palette_of(const Decoder& decoder) {
  Palette palette{};
  png_colorp colours = nullptr;
  int count = 0;
  png_get_PLTE(decoder.png, decoder.info, &colours, &count);
  for (int i = 0; i < std::min(count, 256); ++i)
    palette[static_cast<size_t>(i)] = {colours[i].red, colours[i].green, colours[i].blue};
  return palette;
}

// Of 1 to 4 bits the whole range; of 16 bits what Pillow's 16-bit grey comes to: 255 and above is
// white.
uint8_t grey_value(const uint8_t* sample, int bit_depth) {
  if (bit_depth == 16) return sample[0] == 0 ? sample[1] : 255;
  return static_cast<uint8_t>(sample[0] * (255 / ((1 << bit_depth) - 1)));
}

// A row of grey, or of places in the palette.
void write_row(const uint8_t* row, int colour_type, int bit_depth, const Palette& palette,
               int64_t width, uint8_t* rgb) {
  const int step = colour_type == PNG_COLOR_TYPE_GRAY && bit_depth == 16 ? 2 : 1;
  for (int64_t x = 0; x < width; ++x, row += step, rgb += 3) {
    if (colour_type == PNG_COLOR_TYPE_PALETTE)
      std::copy_n(palette[*row].data(), 3, rgb);
    else if (colour_type == PNG_COLOR_TYPE_GRAY)
      std::fill_n(rgb, 3, grey_value(row, bit_depth));
    else
      std::fill_n(rgb, 3, *row);
  }
}

}  // namespace

DecodedPicture decode_png(std::span<const std::byte> bytes, int64_t max_pixels) {
  Decoder decoder;
  decoder.bytes = bytes;
  if (!read_header(decoder)) refuse(decoder);
  const int64_t width = png_get_image_width(decoder.png, decoder.info);
  const int64_t height = png_get_image_height(decoder.png, decoder.info);
  check_picture_size(width, height, max_pixels);
  const int bit_depth = png_get_bit_depth(decoder.png, decoder.info);
  const int colour_type = png_get_color_type(decoder.png, decoder.info);
  const bool is_rgb = colour_type == PNG_COLOR_TYPE_RGB || colour_type == PNG_COLOR_TYPE_RGB_ALPHA;
  if (!prepare_rows(decoder)) refuse(decoder);
  DecodedPicture decoded;
  decoded.orientation = orientation_in(bytes);
  decoded.picture = {width, height, std::vector<uint8_t>(static_cast<size_t>(width * height * 3))};
  uint8_t* const rgb = decoded.picture.rgb.data();
  const size_t row_bytes = png_get_rowbytes(decoder.png, decoder.info);
  SNUG_CHECK(!is_rgb || row_bytes == static_cast<size_t>(width) * 3, "rows of {} bytes for {}",
             row_bytes, width);
  std::vector<uint8_t> samples(is_rgb ? 0 : row_bytes * static_cast<size_t>(height));
  uint8_t* const rows = is_rgb ? rgb : samples.data();
  if (!read_rows(decoder, rows, row_bytes, static_cast<size_t>(height))) refuse(decoder);
  if (is_rgb) return decoded;
  const Palette palette = palette_of(decoder);
  for (size_t y = 0; y < static_cast<size_t>(height); ++y)
    write_row(rows + y * row_bytes, colour_type, bit_depth, palette, width,
              rgb + y * static_cast<size_t>(width) * 3);
  return decoded;
}

}  // namespace snug::formats
