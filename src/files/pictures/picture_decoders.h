// One decoder per format. Each returns the picture as stored, and its orientation. They throw
// UserError without the picture's name, which decode_picture adds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "files/pictures/picture.h"

namespace snug::files {

struct DecodedPicture {
  Picture picture;
  int orientation = 1;  // EXIF's: 1 to 8
};

DecodedPicture decode_jpeg(std::span<const std::byte> bytes, int64_t max_pixels);
DecodedPicture decode_png(std::span<const std::byte> bytes, int64_t max_pixels);
DecodedPicture decode_webp(std::span<const std::byte> bytes, int64_t max_pixels);

// Blends a value onto white with opacity alpha / 255, in Pillow's fixed-point arithmetic.
constexpr uint8_t on_white(uint32_t value, uint32_t alpha) {
  const uint32_t scaled = 128 * (value * alpha + 255 * (255 - alpha) + 128);
  return static_cast<uint8_t>((scaled + (scaled >> 8)) >> 15);
}

// Throws UserError for a picture that is empty or too large.
void check_picture_size(int64_t width, int64_t height, int64_t max_pixels);

// The orientation in EXIF data (with or without the prefix "Exif\0\0"); 0 if there is none.
int exif_orientation(std::span<const uint8_t> exif);
// The same from XMP's XML.
int xmp_orientation(std::string_view xmp);

// Applies the orientation (rotation and mirroring) to the picture.
void turn_upright(Picture& picture, int orientation);

}  // namespace snug::files
