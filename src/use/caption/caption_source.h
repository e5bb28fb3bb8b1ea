// Which pictures `snug caption` is to tell: files that are named, or the rows of a data set. Of
// either nothing is held but where it lies.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "data/pictures/picture_rows.h"
#include "recipe/options/commands.h"

namespace snug::use {

struct CaptionSource {
  std::shared_ptr<const data::PictureRows> rows;
  int64_t count = 0;     // the first so many of them
  bool is_data = false;  // rows of a data set, which may hold a picture more than once
};

// With options.beside less what has a caption already. Throws UserError where options are at odds,
// or name nothing.
CaptionSource open_caption_source(const recipe::CaptionOptions& options);

}  // namespace snug::use
