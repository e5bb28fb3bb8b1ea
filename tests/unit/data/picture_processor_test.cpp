// Resizing against the bytes of torchvision and Pillow (tests/oracles/pictures_torchvision.py,
// tests/oracles/pictures.py), and what preprocessor_config.json may say.
// SPDX-License-Identifier: Apache-2.0
#include "data/pictures/picture_processor.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data_fixtures.h"
#include "files/pictures/picture.h"
#include "files/weights/pth/zip.h"

namespace snug::data {
namespace {

using nlohmann::json;

std::filesystem::path pictures() {
  return std::filesystem::path(SNUG_SOURCE_DIR) / "tests/data/pictures";
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The pictures that the oracles made, too.
using Pixels = std::vector<uint8_t>;

Pixels noise(int64_t width, int64_t height) {
  Pixels out;
  uint32_t state = 12345;
  for (int64_t i = 0; i < width * height * 3; ++i) {
    state = (state * 1103515245U + 12345U) & 0x7FFFFFFFU;
    out.push_back(static_cast<uint8_t>(state >> 16));
  }
  return out;
}

// 16 x 12 random colours and what lies between them.
Pixels smooth(int64_t width, int64_t height) {
  const Pixels grid = noise(16, 12);
  Pixels out;
  for (int64_t row = 0; row < height; ++row)
    for (int64_t column = 0; column < width; ++column)
      for (int64_t c = 0; c < 3; ++c) {
        const int64_t x = column * (15 * 256 - 1) / std::max<int64_t>(width - 1, 1);
        const int64_t y = row * (11 * 256 - 1) / std::max<int64_t>(height - 1, 1);
        const auto mixed = [&](int64_t line) {
          const uint8_t* left = grid.data() + (line * 16 + x / 256) * 3 + c;
          return left[0] * (256 - x % 256) + left[3] * (x % 256);
        };
        const int64_t value = mixed(y / 256) * (256 - y % 256) + mixed(y / 256 + 1) * (y % 256);
        out.push_back(static_cast<uint8_t>(value >> 16));
      }
  return out;
}

// Ramps, bars and squares with hard edges.
Pixels graphic(int64_t width, int64_t height) {
  Pixels out;
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (const int64_t value : {(x * 7 + y * 3) % 256, x / 2 % 256, (x / 9 + y / 9) % 2 * 255})
        out.push_back(static_cast<uint8_t>(value));
  return out;
}

uint32_t checksum_resized(const Pixels& pixels, Extent from, Extent to, const json& resampling) {
  Pixels out(static_cast<size_t>(to.width * to.height * 3));
  resize(pixels.data(), from, static_cast<Resampling>(resampling.get<int>()), out.data(), to);
  return files::crc32(std::as_bytes(std::span(out)));
}

TEST(Resize, HasPillowsBytesForItsFilters) {
  const json expected = json::parse(read_file(pictures() / "expected.json"));
  ASSERT_EQ(expected["resized"].size(), 60);
  for (const json& row : expected["resized"]) {
    const Extent from = {row[0], row[1]}, to = {row[2], row[3]};
    EXPECT_EQ(checksum_resized(noise(from.width, from.height), from, to, row[4]),
              row[5].get<uint32_t>())
        << row.dump();
  }
}

// The processor of transformers 5: not one value differs. Pillow's values, which earlier versions
// had, are as far from these as the oracle found, and the guide to captions says.
TEST(Resize, HasTorchvisionsBytes) {
  const json expected = json::parse(read_file(pictures() / "torchvision.json"));
  ASSERT_EQ(expected["rows"].size(), 63);
  double values = 0, different = 0, more_than_one = 0;
  for (const json& row : expected["rows"]) {
    const std::string kind = row[0];
    const Extent from = {row[1], row[2]}, to = {row[3], row[4]};
    const auto make = kind == "noise" ? noise : kind == "smooth" ? smooth : graphic;
    EXPECT_EQ(checksum_resized(make(from.width, from.height), from, to, row[5]),
              row[6].get<uint32_t>())
        << row.dump();
    EXPECT_LE(row[7].get<int>(), 2) << row.dump();
    values += static_cast<double>(to.width * to.height * 3);
    different += row[8].get<double>() + row[9].get<double>();
    more_than_one += row[9].get<double>();
  }
  EXPECT_LT(different, 0.006 * values);
  EXPECT_LT(more_than_one, 1e-5 * values);
}

constexpr Reading kWhole = {.image_size = 224};
constexpr Reading kTiles = {.image_size = 512, .pictures_anywhere = true};

TEST(PictureProcessor, IsBlipsWhereNothingIsSaid) {
  const Folder folder;
  const PictureProcessor processor = read_picture_processor(folder.path(), kWhole);
  EXPECT_EQ(processor.size, 224);
  EXPECT_EQ(processor.resampling, Resampling::Bicubic);
  EXPECT_TRUE(processor.resizes);
}

TEST(PictureProcessor, ReadsWhatTransformersWrites) {
  const Folder folder;
  folder.write("preprocessor_config.json", R"({"do_resize": true, "size": {"height": 8, "width": 8},
    "resample": 2, "do_rescale": true, "rescale_factor": 0.00392156862745098, "do_normalize": true,
    "image_mean": [0.5, 0.6, 0.7], "image_std": [0.1, 0.2, 0.4], "image_processor_type": "X"})");
  EXPECT_EQ(read_picture_processor(folder.path(), {.image_size = 8}).resampling,
            Resampling::Bilinear);
  folder.write("preprocessor_config.json", R"({"size": 8, "do_resize": false})");
  EXPECT_EQ(read_picture_processor(folder.path(), {.image_size = 8}).resampling,
            Resampling::Bicubic);
  EXPECT_FALSE(read_picture_processor(folder.path(), {.image_size = 8}).resizes);
}

TEST(PictureProcessor, RefusesWhatItDoesNotDo) {
  const Folder folder;
  const auto refusal = [&](const char* text) {
    folder.write("preprocessor_config.json", text);
    return message_of([&] { read_picture_processor(folder.path(), kWhole); });
  };
  EXPECT_CONTAINS(refusal("[]"), "preprocessor_config.json: not a JSON object");
  EXPECT_CONTAINS(refusal(R"({"size": {"height": 364, "width": 364}})"),
                  "size = 364, but the model takes pictures of 224 pixels a side");
  EXPECT_CONTAINS(refusal(R"({"size": {"height": 224, "width": 300}})"), "equals the width");
  EXPECT_CONTAINS(refusal(R"({"size": {"shortest_edge": 224}})"), "\"height\"");
  EXPECT_CONTAINS(refusal(R"({"do_center_crop": true})"), "do_center_crop = true");
  EXPECT_CONTAINS(refusal(R"({"resample": 9})"), "resample = 9; it must be 0 (nearest)");
  EXPECT_CONTAINS(refusal(R"({"do_resize": "x"})"), "true or false");
}

TEST(PictureProcessor, CutsTilesAsIdefics3sDoes) {
  const json expected = json::parse(read_file(pictures() / "tiles.json"));
  ASSERT_EQ(expected["rows"].size(), 21);
  for (const json& row : expected["rows"]) {
    const PictureProcessor processor{.size = row["tile"],
                                     .resampling = Resampling::Lanczos,
                                     .longest_side = row["longest"],
                                     .cuts = row["cut"]};
    const int64_t width = row["width"], height = row["height"];
    const std::vector<std::byte> png =
        files::encode_png({.width = width, .height = height, .rgb = noise(width, height)});
    const PreparedPicture picture = processor.prepare(png, "noise");
    const Grid grid{row["rows"], row["columns"]};
    EXPECT_EQ(picture.grid, grid) << row.dump();
    EXPECT_EQ(processor.grid({width, height}), grid) << row.dump();
    EXPECT_EQ(grid.num_pictures(), row["pictures"]) << row.dump();
    EXPECT_EQ(files::crc32(std::as_bytes(std::span(picture.pixels))), row["crc"].get<uint32_t>())
        << row.dump();
    EXPECT_EQ(text_of_picture(grid, 2), row["text"]) << row.dump();
    EXPECT_LE(grid.num_pictures(), processor.most_pictures()) << row.dump();
  }
}

TEST(PictureProcessor, ReadsHowTilesAreCut) {
  const Folder folder;
  const PictureProcessor usual = read_picture_processor(folder.path(), kTiles);
  EXPECT_EQ(usual.resampling, Resampling::Lanczos);
  EXPECT_EQ(usual.longest_side, 2048);
  EXPECT_EQ(usual.most_pictures(), 17);
  const auto read = [&](const char* text) {
    folder.write("preprocessor_config.json", text);
    return read_picture_processor(folder.path(), kTiles);
  };
  EXPECT_EQ(read(R"({"size": {"longest_edge": 1024}, "resample": 3})").most_pictures(), 5);
  EXPECT_EQ(read(R"({"do_image_splitting": false})").most_pictures(), 1);
  EXPECT_CONTAINS(message_of([&] { read(R"({"max_image_size": {"longest_edge": 364}})"); }),
                  "max_image_size = 364, but the model takes pictures of 512");
  EXPECT_CONTAINS(message_of([&] { read(R"({"size": {"height": 9}})"); }), "longest_edge");
  EXPECT_CONTAINS(message_of([&] { read(R"({"do_resize": false})"); }), "do_resize = false");
}

TEST(PictureProcessor, DecodesAndResizes) {
  const std::string file = read_file(pictures() / "turned6.jpg");
  const PictureProcessor processor{.size = 12};
  const PreparedPicture picture = processor.prepare(bytes_of(file), "cat.jpg");
  EXPECT_EQ(picture.grid, Grid());
  EXPECT_EQ(picture.pixels.size(), 12 * 12 * 3);
  EXPECT_NE(picture.pixels, Pixels(12 * 12 * 3, 0));
  const PictureProcessor fixed{.size = 12, .resizes = false};
  EXPECT_CONTAINS(message_of([&] { fixed.prepare(bytes_of(file), "cat.jpg"); }),
                  "cat.jpg: 17 × 23 pixels, but the model takes 12 × 12");
}

}  // namespace
}  // namespace snug::data
