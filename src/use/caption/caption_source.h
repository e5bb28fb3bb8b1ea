// The pictures for `snug caption`: files named on the command line, or the rows of a data set. Only
// their places are held in memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "data/pictures/picture_rows.h"
#include "recipe/options/commands.h"

namespace snug::use {

struct CaptionSource {
  std::shared_ptr<const data::PictureRows> rows;
  int64_t count = 0;     // use the first `count` rows
  bool is_data = false;  // a data set, in which pictures may repeat
};

// Leaves out pictures with a caption file if options.beside is set. Throws UserError for options
// that contradict each other or name no picture.
CaptionSource open_caption_source(const recipe::CaptionOptions& options);

}  // namespace snug::use
