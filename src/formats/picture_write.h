// RGB bytes to a PNG in memory, for pictures that are made rather than read.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "formats/picture.h"

namespace snug::formats {

// decode_picture() of what this gives has the same bytes.
std::vector<std::byte> encode_png(const Picture& picture);

}  // namespace snug::formats
