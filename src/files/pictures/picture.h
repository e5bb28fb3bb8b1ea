// JPEG, PNG and WebP to RGB bytes, pixel for pixel what Pillow gives for
// ImageOps.exif_transpose(Image.open(…)).convert("RGB"): grey and palettes become RGB, transparency
// is dropped, CMYK is read as Adobe writes it, an animation gives its first frame, and the EXIF (or
// XMP) orientation is applied. Any fault in the bytes throws a UserError.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace snug::files {

struct Picture {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb;  // (height, width, 3)
};

// 256 MiB decoded: Pillow's limit for its warning of decompression bombs.
inline constexpr int64_t kMaxPicturePixels = (int64_t{1} << 28) / 3;

// `where` names the picture in errors. Pictures of more than max_pixels are refused before they are
// decoded.
Picture decode_picture(std::span<const std::byte> bytes, const std::string& where,
                       int64_t max_pixels = kMaxPicturePixels);

// Encodes RGB bytes as a PNG, for generated pictures. decode_picture() returns the same bytes
// again.
std::vector<std::byte> encode_png(const Picture& picture);

}  // namespace snug::files
