// Encodes RGB bytes as a PNG in memory, for generated pictures.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "files/pictures/picture.h"

namespace snug::files {

// decode_picture() returns the same bytes again.
std::vector<std::byte> encode_png(const Picture& picture);

}  // namespace snug::files
