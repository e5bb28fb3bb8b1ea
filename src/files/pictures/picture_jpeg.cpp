// JPEG through libjpeg-turbo. Its errors use longjmp, so functions that call setjmp have no objects
// with destructors; state is in the caller's JpegDecoder.
// SPDX-License-Identifier: Apache-2.0
#include <csetjmp>
#include <cstdio>
// jpeglib.h wants FILE and size_t declared before it.
#include <jpeglib.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "files/pictures/picture_decoders.h"

namespace snug::files {
namespace {

constexpr int kExifMarker = JPEG_APP0 + 1;  // XMP's too
// A progressive picture has about ten scans, and each passes over all blocks.
constexpr int kMostScans = 100;
constexpr std::string_view kXmpMark("http://ns.adobe.com/xap/1.0/\0", 29);

struct JpegDecoder {
  jpeg_error_mgr errors{};  // first member: libjpeg passes back this struct's address
  std::jmp_buf on_error{};
  char message[JMSG_LENGTH_MAX] = {};
  jpeg_decompress_struct jpeg{};
  jpeg_source_mgr source{};
  jpeg_progress_mgr progress{};

  JpegDecoder() = default;
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
  ~JpegDecoder() { jpeg_destroy_decompress(&jpeg); }
};

JpegDecoder& decoder_of(j_common_ptr jpeg) { return *reinterpret_cast<JpegDecoder*>(jpeg->err); }

[[noreturn]] void leave(j_common_ptr jpeg) {
  JpegDecoder& decoder = decoder_of(jpeg);
  decoder.errors.format_message(jpeg, decoder.message);
  std::longjmp(decoder.on_error, 1);
}

// Warnings are ignored and the picture is decoded as far as possible, as in Pillow.
void ignore_message(j_common_ptr, int) {}

boolean at_end(j_decompress_ptr jpeg) {
  JpegDecoder& decoder = decoder_of(reinterpret_cast<j_common_ptr>(jpeg));
  std::snprintf(decoder.message, sizeof decoder.message, "the file is cut short");
  std::longjmp(decoder.on_error, 1);
}

void skip(j_decompress_ptr jpeg, long count) {
  jpeg_source_mgr& source = *jpeg->src;
  const size_t step = std::min(static_cast<size_t>(std::max(count, 0L)), source.bytes_in_buffer);
  source.next_input_byte += step;
  source.bytes_in_buffer -= step;
}

void nothing(j_decompress_ptr) {}

// Called as the decoder goes on.
void check_scans(j_common_ptr jpeg) {
  if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= kMostScans) return;
  JpegDecoder& decoder = decoder_of(jpeg);
  std::snprintf(decoder.message, sizeof decoder.message, "it has more than %d scans; save it again",
                kMostScans);
  std::longjmp(decoder.on_error, 1);
}

void open(JpegDecoder& decoder, std::span<const std::byte> bytes) {
  decoder.jpeg.err = jpeg_std_error(&decoder.errors);
  decoder.errors.error_exit = leave;
  decoder.errors.emit_message = ignore_message;
  jpeg_create_decompress(&decoder.jpeg);
  decoder.source.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
  decoder.source.bytes_in_buffer = bytes.size();
  decoder.source.init_source = nothing;
  decoder.source.fill_input_buffer = at_end;
  decoder.source.skip_input_data = skip;
  decoder.source.resync_to_restart = jpeg_resync_to_restart;
  decoder.source.term_source = nothing;
  decoder.jpeg.src = &decoder.source;
  decoder.progress.progress_monitor = check_scans;
  decoder.jpeg.progress = &decoder.progress;
}

bool read_header(JpegDecoder& decoder, std::span<const std::byte> bytes) {
  decoder.jpeg.err = &decoder.errors;
  if (setjmp(decoder.on_error) != 0) return false;
  open(decoder, bytes);
  jpeg_save_markers(&decoder.jpeg, kExifMarker, 0xFFFF);
  jpeg_read_header(&decoder.jpeg, TRUE);
  return true;
}

// Rows of `row_bytes` each to `out`.
bool read_rows(JpegDecoder& decoder, J_COLOR_SPACE colours, uint8_t* out, size_t row_bytes) {
  if (setjmp(decoder.on_error) != 0) return false;
  decoder.jpeg.out_color_space = colours;
  jpeg_start_decompress(&decoder.jpeg);
  while (decoder.jpeg.output_scanline < decoder.jpeg.output_height) {
    JSAMPROW row = out + decoder.jpeg.output_scanline * row_bytes;
    jpeg_read_scanlines(&decoder.jpeg, &row, 1);
  }
  return true;
}

[[noreturn]] void refuse(const JpegDecoder& decoder) {
  throw UserError("not a readable JPEG: {}", decoder.message);
}

int orientation_of(const jpeg_decompress_struct& jpeg) {
  int from_xmp = 0;
  for (const jpeg_marker_struct* marker = jpeg.marker_list; marker; marker = marker->next) {
    const std::span<const uint8_t> data(marker->data, marker->data_length);
    const std::string_view text(reinterpret_cast<const char*>(data.data()), data.size());
    if (text.starts_with("Exif")) {
      if (const int found = exif_orientation(data); found > 0) return found;
    } else if (text.starts_with(kXmpMark) && from_xmp == 0) {
      from_xmp = xmp_orientation(text.substr(kXmpMark.size()));
    }
  }
  return from_xmp;
}

// round(a * b / 255)
uint8_t scaled(int a, int b) {
  const int product = a * b + 128;
  return static_cast<uint8_t>((product / 256 + product) / 256);
}

// Adobe stores inks inverted: 255 is no ink.
void rgb_from_inks(const std::vector<uint8_t>& inks, std::vector<uint8_t>& rgb) {
  for (size_t i = 0; i < inks.size() / 4; ++i) {
    const int light = inks[4 * i + 3];
    for (size_t c = 0; c < 3; ++c)
      rgb[3 * i + c] = static_cast<uint8_t>(light - scaled(255 - inks[4 * i + c], light));
  }
}

}  // namespace

DecodedPicture decode_jpeg(std::span<const std::byte> bytes, int64_t max_pixels) {
  JpegDecoder decoder;
  if (!read_header(decoder, bytes)) refuse(decoder);
  const jpeg_decompress_struct& jpeg = decoder.jpeg;
  const int64_t width = jpeg.image_width, height = jpeg.image_height;
  check_picture_size(width, height, max_pixels);
  const int components = jpeg.num_components;
  if (components != 1 && components != 3 && components != 4)
    throw UserError("a JPEG of {} components; only 1, 3 and 4 are supported", components);
  DecodedPicture decoded;
  decoded.orientation = orientation_of(jpeg);
  decoded.picture = {width, height, std::vector<uint8_t>(static_cast<size_t>(width * height * 3))};
  std::vector<uint8_t>& rgb = decoded.picture.rgb;
  if (components == 4) {
    std::vector<uint8_t> inks(static_cast<size_t>(width * height * 4));
    if (!read_rows(decoder, JCS_CMYK, inks.data(), static_cast<size_t>(width) * 4)) refuse(decoder);
    rgb_from_inks(inks, rgb);
  } else {
    // libjpeg converts grey to RGB itself.
    if (!read_rows(decoder, JCS_RGB, rgb.data(), static_cast<size_t>(width) * 3)) refuse(decoder);
  }
  return decoded;
}

}  // namespace snug::files
