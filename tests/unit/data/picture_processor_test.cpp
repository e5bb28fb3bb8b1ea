// Resizing against Pillow's bytes (tests/oracles/pictures.py), and what preprocessor_config.json
// may say.
// SPDX-License-Identifier: Apache-2.0
#include "data/picture_processor.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "data_fixtures.h"
#include "formats/crc32.h"

namespace snug::data {
namespace {

using nlohmann::json;

std::filesystem::path pictures() {
  return std::filesystem::path(SNUG_SOURCE_DIR) / "tests/data/pictures";
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The picture that the oracle made, too.
std::vector<uint8_t> pixels(int64_t width, int64_t height) {
  std::vector<uint8_t> out;
  uint32_t state = 12345;
  for (int64_t i = 0; i < width * height * 3; ++i) {
    state = (state * 1103515245U + 12345U) & 0x7FFFFFFFU;
    out.push_back(static_cast<uint8_t>(state >> 16));
  }
  return out;
}

TEST(Resize, HasPillowsBytesForEveryFilterAndShape) {
  const json expected = json::parse(read_file(pictures() / "expected.json"));
  for (const json& row : expected["resized"]) {
    const Extent from = {row[0], row[1]}, to = {row[2], row[3]};
    std::vector<uint8_t> out(static_cast<size_t>(to.width * to.height * 3));
    resize(pixels(from.width, from.height).data(), from, static_cast<Resampling>(row[4].get<int>()),
           out.data(), to);
    EXPECT_EQ(formats::crc32(std::as_bytes(std::span(out))), row[5].get<uint32_t>()) << row.dump();
  }
}

// transformers 5 resizes with torchvision unless told otherwise: weights of 16 bits there, 22 here
// and in Pillow, so now and then a value is rounded the other way
// (tests/oracles/pictures_torchvision.py).
TEST(Resize, IsWithinOneOfTorchvisions) {
  const json expected = json::parse(read_file(pictures() / "torchvision.json"));
  const std::string theirs = read_file(pictures() / "torchvision.bin");
  const int64_t side = expected["side"];
  const auto bytes = static_cast<size_t>(side * side * 3);
  ASSERT_EQ(theirs.size(), bytes * expected["cases"].size());
  size_t begin = 0, different = 0;
  for (const json& row : expected["cases"]) {
    const Extent from = {row[0], row[1]};
    std::vector<uint8_t> picture = pixels(row[2] ? from.width : 16, row[2] ? from.height : 12);
    if (!row[2]) {
      std::vector<uint8_t> large(static_cast<size_t>(from.width * from.height * 3));
      resize(picture.data(), {16, 12}, Resampling::Bicubic, large.data(), from);
      picture = std::move(large);
    }
    std::vector<uint8_t> ours(bytes);
    resize(picture.data(), from, Resampling::Bicubic, ours.data(), {side, side});
    for (size_t i = 0; i < bytes; ++i) {
      const int difference = std::abs(ours[i] - static_cast<uint8_t>(theirs[begin + i]));
      ASSERT_LE(difference, 1) << row.dump() << " at byte " << i;
      different += difference;
    }
    begin += bytes;
  }
  EXPECT_LT(static_cast<double>(different), 0.004 * static_cast<double>(theirs.size()));
}

TEST(PictureProcessor, IsBlipsWhereNothingIsSaid) {
  const Folder folder;
  const PictureProcessor processor = read_picture_processor(folder.path(), 224);
  EXPECT_EQ(processor.size, 224);
  EXPECT_EQ(processor.resampling, Resampling::Bicubic);
  EXPECT_FLOAT_EQ(processor.mean[0], 0.48145466F);
  EXPECT_FLOAT_EQ(processor.deviation[2], 0.27577711F);
}

TEST(PictureProcessor, ReadsWhatTransformersWrites) {
  const Folder folder;
  folder.write("preprocessor_config.json", R"({"do_resize": true, "size": {"height": 8, "width": 8},
    "resample": 2, "do_rescale": true, "rescale_factor": 0.00784313725490196, "do_normalize": true,
    "image_mean": [0.5, 0.6, 0.7], "image_std": [0.1, 0.2, 0.4], "image_processor_type": "X"})");
  const PictureProcessor processor = read_picture_processor(folder.path(), 8);
  EXPECT_EQ(processor.resampling, Resampling::Bilinear);
  // Rescaled by 2 / 255: half the mean and deviation on a scale of 0 to 1.
  EXPECT_FLOAT_EQ(processor.mean[1], 0.3F);
  EXPECT_FLOAT_EQ(processor.deviation[2], 0.2F);
  folder.write("preprocessor_config.json", R"({"size": 8, "do_normalize": false})");
  EXPECT_EQ(read_picture_processor(folder.path(), 8).mean[0], 0);
  EXPECT_EQ(read_picture_processor(folder.path(), 8).deviation[0], 1);
}

TEST(PictureProcessor, RefusesWhatItDoesNotDo) {
  const Folder folder;
  const auto refusal = [&](const char* text) {
    folder.write("preprocessor_config.json", text);
    return message_of([&] { read_picture_processor(folder.path(), 224); });
  };
  EXPECT_CONTAINS(refusal("[]"), "preprocessor_config.json: not a JSON object");
  EXPECT_CONTAINS(refusal(R"({"size": {"height": 364, "width": 364}})"),
                  "size = 364, but the model takes pictures of 224 pixels a side");
  EXPECT_CONTAINS(refusal(R"({"size": {"height": 224, "width": 300}})"), "equals the width");
  EXPECT_CONTAINS(refusal(R"({"size": {"shortest_edge": 224}})"), "\"height\"");
  EXPECT_CONTAINS(refusal(R"({"do_center_crop": true})"), "do_center_crop = true");
  EXPECT_CONTAINS(refusal(R"({"resample": 9})"), "resample = 9, but 0 (nearest)");
  EXPECT_CONTAINS(refusal(R"({"image_std": [0, 1, 1]})"), "deviations that are not 0");
  EXPECT_CONTAINS(refusal(R"({"image_mean": "x"})"), "three numbers");
}

TEST(PictureProcessor, DecodesAndResizes) {
  const std::string file = read_file(pictures() / "turned6.jpg");
  const PictureProcessor processor{.size = 12};
  std::vector<uint8_t> out(12 * 12 * 3, 77);
  processor.process(bytes_of(file), "cat.jpg", out.data());
  EXPECT_NE(out, std::vector<uint8_t>(12 * 12 * 3, 77));
  const PictureProcessor fixed{.size = 12, .resizes = false};
  EXPECT_CONTAINS(message_of([&] { fixed.process(bytes_of(file), "cat.jpg", out.data()); }),
                  "cat.jpg: 17 × 23 pixels, but the model takes 12 × 12");
}

}  // namespace
}  // namespace snug::data
