// A data set of pictures with captions: which rows are taken, held out, tokenized.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "data/dataset.h"

namespace snug::data {

// The pictures that the options name; null where they name a data set of text alone.
std::shared_ptr<const PictureRows> open_pictures(const DatasetOptions& options);

// Fills in everything but what is said of prompt styles.
Dataset load_captions(std::shared_ptr<const PictureRows> pictures, const DatasetOptions& options,
                      const TextEncoder& encoder);

}  // namespace snug::data
