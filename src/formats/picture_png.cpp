// PNG through libpng, whose rows are taken as they are and made RGB here: its own conversions would
// scale 16-bit grey where Pillow clips it. Errors leave by longjmp; see picture_jpeg.cpp.
// SPDX-License-Identifier: Apache-2.0
#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
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
  png_infop end_info = nullptr;

  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() { png_destroy_read_struct(&png, &info, &end_info); }
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
  decoder.end_info = png_create_info_struct(decoder.png);
  if (decoder.info == nullptr || decoder.end_info == nullptr) return false;
  png_set_read_fn(decoder.png, &decoder, read_bytes);
  // Sizes are checked by us; a chunk of text may be long, but is not kept beyond this.
  png_set_user_limits(decoder.png, 0x7FFFFFFF, 0x7FFFFFFF);
  png_set_chunk_malloc_max(decoder.png, 64 << 20);
  png_read_info(decoder.png, decoder.info);
  return true;
}

// Rows of one to four samples a pixel, one or two bytes a sample.
bool read_rows(Decoder& decoder, png_bytepp rows) {
  if (setjmp(decoder.on_error) != 0) return false;
  png_read_image(decoder.png, rows);
  return true;
}

// Chunks behind the picture; a file that ends badly there is still a whole picture.
void read_end(Decoder& decoder) {
  if (setjmp(decoder.on_error) != 0) return;
  png_read_end(decoder.png, decoder.end_info);
}

[[noreturn]] void refuse(const Decoder& decoder) {
  throw UserError("not a readable PNG: {}",
                  decoder.message[0] != 0 ? decoder.message : "out of memory");
}

int orientation_in(png_structp png, png_infop info) {
  png_uint_32 length = 0;
  png_bytep exif = nullptr;
  if (png_get_eXIf_1(png, info, &length, &exif) != 0)
    if (const int found = exif_orientation({exif, length}); found > 0) return found;
  png_textp texts = nullptr;
  const int count = png_get_text(png, info, &texts, nullptr);
  for (int i = 0; i < count; ++i) {
    if (std::strcmp(texts[i].key, "XML:com.adobe.xmp") != 0) continue;
    const size_t size = texts[i].compression >= PNG_ITXT_COMPRESSION_NONE ? texts[i].itxt_length
                                                                          : texts[i].text_length;
    if (const int found = xmp_orientation({texts[i].text, size}); found > 0) return found;
  }
  return 0;
}

struct Layout {
  int colour_type = 0, bit_depth = 0;
  size_t channels = 0, sample_bytes = 0;
};

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

void write_row(const uint8_t* row, const Layout& layout, const Palette& palette, int64_t width,
               uint8_t* rgb) {
  const size_t step = layout.channels * layout.sample_bytes;
  for (int64_t x = 0; x < width; ++x, row += step, rgb += 3) {
    if (layout.colour_type == PNG_COLOR_TYPE_PALETTE)
      std::copy_n(palette[*row].data(), 3, rgb);
    else if (layout.colour_type == PNG_COLOR_TYPE_GRAY)
      std::fill_n(rgb, 3, grey_value(row, layout.bit_depth));
    else if (layout.colour_type == PNG_COLOR_TYPE_GRAY_ALPHA)
      std::fill_n(rgb, 3, row[0]);
    else
      for (size_t c = 0; c < 3; ++c) rgb[c] = row[c * layout.sample_bytes];
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
  const Layout layout = {png_get_color_type(decoder.png, decoder.info), bit_depth,
                         png_get_channels(decoder.png, decoder.info),
                         bit_depth == 16 ? size_t{2} : size_t{1}};
  png_set_packing(decoder.png);  // a byte a sample at least
  png_set_interlace_handling(decoder.png);
  const size_t row_bytes = static_cast<size_t>(width) * layout.channels * layout.sample_bytes;
  std::vector<uint8_t> samples(row_bytes * static_cast<size_t>(height));
  std::vector<png_bytep> rows(static_cast<size_t>(height));
  for (size_t y = 0; y < rows.size(); ++y) rows[y] = samples.data() + y * row_bytes;
  if (!read_rows(decoder, rows.data())) refuse(decoder);
  read_end(decoder);
  DecodedPicture decoded;
  const int before = orientation_in(decoder.png, decoder.info);
  decoded.orientation = before > 0 ? before : orientation_in(decoder.png, decoder.end_info);
  decoded.picture = {width, height, std::vector<uint8_t>(static_cast<size_t>(width * height * 3))};
  const Palette palette = palette_of(decoder);
  for (size_t y = 0; y < rows.size(); ++y)
    write_row(rows[y], layout, palette, width,
              decoded.picture.rgb.data() + y * static_cast<size_t>(width) * 3);
  return decoded;
}

}  // namespace snug::formats
