// SPDX-License-Identifier: Apache-2.0
#include "data/pictures/synthetic_pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "data/random.h"
#include "data/synthetic.h"
#include "files/pictures/picture_write.h"

namespace snug::data {
namespace {

using Colour = std::array<uint8_t, 3>;

constexpr Colour kColours[SyntheticPicture::kColours] = {
    {220, 40, 40},  {40, 170, 60},  {50, 80, 220},  {235, 200, 40},
    {150, 60, 190}, {40, 190, 200}, {240, 130, 30}, {245, 245, 245}};

// Whether a point belongs to a shape of half-width `reach` around the origin: a square, a disc, a
// diamond, a cross.
bool covers(int64_t shape, int64_t x, int64_t y, int64_t reach) {
  const int64_t across = std::abs(x), down = std::abs(y);
  switch (shape) {
    case 0:
      return std::max(across, down) <= reach;
    case 1:
      return x * x + y * y <= reach * reach;
    case 2:
      return across + down <= reach;
    default:
      return std::min(across, down) <= reach / 3 && std::max(across, down) <= reach;
  }
}

}  // namespace

std::vector<std::optional<std::string>> SyntheticPictures::captions(
    std::span<const int64_t> rows) const {
  return std::vector<std::optional<std::string>>(rows.size());
}

PictureBytes SyntheticPictures::picture(int64_t row) const {
  const SyntheticPicture what = synthetic_picture(row);
  SplitMix random(static_cast<uint64_t>(row));
  const int64_t reach = std::max<int64_t>(1, size_ / 4);
  const auto somewhere = [&] {  // a random position with the whole shape inside the picture
    return reach + static_cast<int64_t>(random.below(
                       static_cast<uint64_t>(std::max<int64_t>(1, size_ - 2 * reach))));
  };
  const int64_t centre_x = somewhere(), centre_y = somewhere();
  files::Picture picture{.width = size_, .height = size_, .rgb = {}};
  picture.rgb.reserve(static_cast<size_t>(size_ * size_ * 3));
  for (int64_t y = 0; y < size_; ++y)
    for (int64_t x = 0; x < size_; ++x) {
      const auto shade = static_cast<uint8_t>(90 * (x + y) / (2 * size_));
      const Colour colour = covers(what.shape, x - centre_x, y - centre_y, reach)
                                ? kColours[what.colour]
                                : Colour{shade, shade, shade};
      picture.rgb.insert(picture.rgb.end(), colour.begin(), colour.end());
    }
  const auto bytes = std::make_shared<std::vector<std::byte>>(files::encode_png(picture));
  return {.bytes = *bytes, .owner = bytes};
}

std::string SyntheticPictures::where(int64_t row) const {
  return fmt::format("synthetic picture {}", row);
}

}  // namespace snug::data
