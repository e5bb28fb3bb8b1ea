// Pictures against Pillow's pixels (tests/oracles/pictures.py), and damaged ones.
// SPDX-License-Identifier: Apache-2.0
#include "formats/picture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/files.h"

namespace snug::formats {
namespace {

using nlohmann::json;

std::filesystem::path folder() {
  return std::filesystem::path(SNUG_SOURCE_DIR) / "tests/data/pictures";
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string refusal(const std::string& bytes, int64_t max_pixels = kMaxPicturePixels) {
  try {
    decode_picture(bytes_of(bytes), "cat.jpg", max_pixels);
  } catch (const UserError& error) {
    return error.what();
  }
  return "decoded";
}

TEST(Picture, EveryKindHasPillowsPixels) {
  const json expected = json::parse(read_file(folder() / "expected.json"));
  const std::string pixels = read_file(folder() / "expected.bin");
  for (const json& entry : expected["pictures"]) {
    const std::string name = entry["name"];
    const std::string file = read_file(folder() / name);
    const Picture picture = decode_picture(bytes_of(file), name);
    ASSERT_EQ(picture.width, entry["width"].get<int64_t>()) << name;
    ASSERT_EQ(picture.height, entry["height"].get<int64_t>()) << name;
    const auto* wanted =
        reinterpret_cast<const uint8_t*>(pixels.data()) + entry["offset"].get<size_t>();
    const auto [ours, theirs] = std::mismatch(picture.rgb.begin(), picture.rgb.end(), wanted);
    EXPECT_TRUE(ours == picture.rgb.end()) << name << ": byte " << ours - picture.rgb.begin()
                                           << " is " << int{*ours} << ", not " << int{*theirs};
  }
}

TEST(Picture, CutShortIsRefusedWherever) {
  for (const char* name : {"420.jpg", "progressive.jpg", "cmyk.jpg", "rgb.png", "interlaced16.png",
                           "palette4.png", "lossy.webp", "alpha.webp", "animated.webp"}) {
    const std::string whole = read_file(folder() / name);
    size_t decoded = 0;
    for (size_t size = 0; size < whole.size(); ++size)
      if (refusal(whole.substr(0, size)) == "decoded") ++decoded;
    // Only what stands behind the last pixel may be missing: checksums, the end of the container,
    // further frames.
    const size_t spare = std::string(name).starts_with("animated") ? 150 : 20;
    EXPECT_LE(decoded, spare) << name;
  }
}

TEST(Picture, SaysWhatIsWrong) {
  const std::string jpeg = read_file(folder() / "420.jpg");
  EXPECT_EQ(refusal(jpeg.substr(0, jpeg.size() / 2)),
            "cat.jpg: not a readable JPEG: the file is cut short");
  EXPECT_EQ(refusal(""), "cat.jpg: it is empty");
  EXPECT_EQ(refusal("GIF89a…"), "cat.jpg: it is a GIF; JPEG, PNG and WebP are read");
  EXPECT_EQ(refusal("hello"), "cat.jpg: it is no picture; JPEG, PNG and WebP are read");
  std::string png = read_file(folder() / "rgb.png");
  png[60] = static_cast<char>(png[60] ^ 1);
  EXPECT_TRUE(refusal(png).starts_with("cat.jpg: not a readable PNG: ")) << refusal(png);
}

TEST(Picture, TooManyPixelsAreRefusedBeforeTheyAreDecoded) {
  EXPECT_EQ(refusal(read_file(folder() / "420.jpg"), 23 * 17 - 1),
            "cat.jpg: 23 × 17 pixels are more than the 390 that are decoded; make it smaller");
  EXPECT_EQ(refusal(read_file(folder() / "420.jpg"), 23 * 17), "decoded");
  // The header's size alone: 65500 × 65500 in a JPEG, 2³¹ − 1 squared in a PNG.
  std::string jpeg = read_file(folder() / "420.jpg");
  const size_t frame = jpeg.find("\xFF\xC0");
  for (const size_t at : {5, 6, 7, 8}) jpeg[frame + at] = at % 2 == 1 ? '\xFF' : '\xDC';
  EXPECT_NE(refusal(jpeg).find("65500 × 65500 pixels are more than the 89478485"),
            std::string::npos)
      << refusal(jpeg);
}

}  // namespace
}  // namespace snug::formats
