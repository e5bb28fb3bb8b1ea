// Prepares pictures as a checkpoint's preprocessor_config.json says. Resizing happens here;
// normalization (rescale_factor, image_mean, image_std) happens on the device, and the model reads
// those keys.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/pictures/picture_text.h"
#include "data/pictures/resize.h"
#include "data/reading.h"

namespace snug::data {

// What the model sees of a picture.
struct PreparedPicture {
  Grid grid;
  std::vector<uint8_t> pixels;  // (grid.num_pictures(), size, size, 3)
};

struct PictureProcessor {
  int64_t size = 0;  // pixels per side of what the model sees at once
  bool resizes = true;
  Resampling resampling = Resampling::Bicubic;
  // As Idefics3ImageProcessor does it: a picture is scaled until its longer side has so many pixels
  // (0: it is not), and then, if it is cut, to whole tiles of that size.
  int64_t longest_side = 0;
  bool cuts = false;

  // Decodes a picture and applies its orientation. `where` names it in errors.
  PreparedPicture prepare(std::span<const std::byte> bytes, const std::string& where) const;
  std::vector<PreparedPicture> prepare(std::span<const std::string> files) const;
  Grid grid(Extent picture) const;
  // The number for the pictures with most tiles, which are square.
  int64_t most_pictures() const { return grid({longest_side, longest_side}).num_pictures(); }
};

// Reads the file in `directory`; without one, uses BLIP's values, or Idefics3's for a model whose
// pictures may be anywhere. Throws UserError if the file requires crops or another size than the
// model has.
PictureProcessor read_picture_processor(const std::filesystem::path& directory,
                                        const Reading& reading);

}  // namespace snug::data
