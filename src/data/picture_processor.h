// What happens to a picture before a model sees it, as a checkpoint's preprocessor_config.json says
// it. Sizes are changed here; scaling to mean and deviation (rescale_factor, image_mean, image_std)
// happens on the device, and the model reads what the file says of it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "data/resize.h"

namespace snug::data {

struct PictureProcessor {
  int64_t size = 0;  // pixels a side
  bool resizes = true;
  Resampling resampling = Resampling::Bicubic;

  // Decodes, turns upright and resizes one picture into size × size × 3 bytes of RGB. `where` names
  // it in errors.
  void process(std::span<const std::byte> bytes, const std::string& where, uint8_t* out) const;
};

// Of the file in `directory`; BLIP's own values where there is none. Throws UserError where the
// file asks for what is not done here (crops, sizes that are not square).
PictureProcessor read_picture_processor(const std::filesystem::path& directory, int64_t image_size);

}  // namespace snug::data
