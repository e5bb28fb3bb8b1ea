// Prepares pictures as a checkpoint's preprocessor_config.json says. Resizing happens here;
// normalization (rescale_factor, image_mean, image_std) happens on the device, and the model reads
// those keys.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "data/pictures/resize.h"

namespace snug::data {

struct PictureProcessor {
  int64_t size = 0;  // pixels per side
  bool resizes = true;
  Resampling resampling = Resampling::Bicubic;

  // Decodes one picture, applies its orientation and resizes it to size × size × 3 bytes of RGB.
  // `where` names it in errors.
  void process(std::span<const std::byte> bytes, const std::string& where, uint8_t* out) const;
};

// Reads the file in `directory`; without one, uses BLIP's values. Throws UserError if the file
// requires crops or a size that is not square.
PictureProcessor read_picture_processor(const std::filesystem::path& directory, int64_t image_size);

}  // namespace snug::data
