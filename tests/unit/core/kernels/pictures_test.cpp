// Patches of pictures against the formula, pixel by pixel.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/pictures.h"

#include "unit/core/kernels/arrays.h"

namespace snug::kernels::cpu {
namespace {

constexpr std::array<float, 3> kMean = {0.48145466F, 0.4578275F, 0.40821073F};
constexpr std::array<float, 3> kStd = {0.26862954F, 0.26130258F, 0.27577711F};

// Every value of a pixel occurs.
std::vector<uint8_t> pixels_of(int64_t count) {
  std::vector<uint8_t> pixels(static_cast<size_t>(count));
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 37 + i / 256);
  return pixels;
}

TEST(ImagePatches, AreSquaresOfNormalisedPixelsByChannelRowAndColumn) {
  const int64_t pictures = 3, height = 14, width = 23,
                side = 4;  // two rows and three columns too many
  const std::vector<uint8_t> pixels = pixels_of(pictures * height * width * 3);
  for (const Scalar type : kAllTypes) {
    std::vector<double> expected;
    for (int64_t s = 0; s < pictures; ++s)
      for (int64_t top = 0; top + side <= height; top += side)
        for (int64_t left = 0; left + side <= width; left += side)
          for (size_t c = 0; c < 3; ++c)
            for (int64_t y = top; y < top + side; ++y)
              for (int64_t x = left; x < left + side; ++x) {
                const auto at = static_cast<size_t>(((s * height + y) * width + x) * 3) + c;
                expected.push_back((pixels[at] / 255.0 - kMean[c]) / kStd[c]);
              }
    for (const int threads : {1, 3}) {
      Array out(type, static_cast<int64_t>(expected.size()), 1);
      image_patches({.type = type,
                     .pictures = pictures,
                     .height = height,
                     .width = width,
                     .patch_size = side,
                     .mean = kMean,
                     .std = kStd,
                     .pixels = pixels.data(),
                     .out = out.data(),
                     .num_threads = threads});
      expect_near(out.values(), expected, within(expected, 1.01 * unit_roundoff(type), 1e-9),
                  name_of(type));
      EXPECT_TRUE(out.guards_intact());
    }
  }
}

TEST(ImagePatches, RefusesPicturesSmallerThanAPatch) {
  EXPECT_ANY_THROW(image_patches({.pictures = 1, .height = 16, .width = 3, .patch_size = 4}));
}

}  // namespace
}  // namespace snug::kernels::cpu
