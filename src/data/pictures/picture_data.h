// Loads a data set of pictures with captions: chooses, splits and tokenizes its rows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "data/dataset.h"

namespace snug::data {

// Opens the pictures of a data set; null if it has only text.
std::shared_ptr<const PictureRows> open_pictures(const DatasetOptions& options);

// Fills in everything except prompt_style and its reason.
Dataset load_captions(std::shared_ptr<const PictureRows> pictures, const DatasetOptions& options,
                      const TextEncoder& encoder);

}  // namespace snug::data
