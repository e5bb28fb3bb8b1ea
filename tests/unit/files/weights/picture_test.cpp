// Pictures against Pillow's pixels (tests/oracles/pictures.py), and damaged ones.
// SPDX-License-Identifier: Apache-2.0
#include "files/pictures/picture.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "files/weights/pth/zip.h"

namespace snug::files {
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

std::string big_endian(size_t value) {
  std::string out;
  for (const int shift : {24, 16, 8, 0}) out += static_cast<char>(value >> shift & 0xFF);
  return out;
}

std::string png_chunk(const std::string& kind, const std::string& data) {
  return big_endian(data.size()) + kind + data + big_endian(crc32(bytes_of(kind + data)));
}

// rgb.png with chunks before its pixels.
std::string png_with(const std::string& chunks) {
  std::string png = read_file(folder() / "rgb.png");
  return png.insert(33, chunks);  // signature and header
}

// rgb.png, whose header says another size.
std::string png_of_size(size_t width, size_t height) {
  const std::string png = read_file(folder() / "rgb.png");
  const std::string header = big_endian(width) + big_endian(height) + png.substr(24, 5);
  return png.substr(0, 8) + png_chunk("IHDR", header) + png.substr(33);
}

// animated.webp, whose canvas is said to be another: 24 bits each, less one.
std::string webp_of_size(size_t width, size_t height) {
  std::string webp = read_file(folder() / "animated.webp");
  for (size_t i = 0; i < 3; ++i) {
    webp[24 + i] = static_cast<char>((width - 1) >> 8 * i & 0xFF);
    webp[27 + i] = static_cast<char>((height - 1) >> 8 * i & 0xFF);
  }
  return webp;
}

// So many MiB of one letter, a piece at a time so that they are never held.
std::string compressed_mebibytes(int count) {
  std::string piece(size_t{1} << 20, 'a'), out(piece.size(), '\0');
  z_stream stream{};
  EXPECT_EQ(deflateInit(&stream, Z_BEST_COMPRESSION), Z_OK);
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  for (int i = 1; i <= count; ++i) {
    stream.next_in = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_in = static_cast<uInt>(piece.size());
    EXPECT_EQ(deflate(&stream, i == count ? Z_FINISH : Z_NO_FLUSH),
              i == count ? Z_STREAM_END : Z_OK);
  }
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// The most this process has ever held.
int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
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
  EXPECT_EQ(refusal("GIF89a…"), "cat.jpg: it is a GIF; only JPEG, PNG and WebP are supported");
  EXPECT_EQ(refusal("hello"), "cat.jpg: it is no picture; only JPEG, PNG and WebP are supported");
  std::string png = read_file(folder() / "rgb.png");
  png[60] = static_cast<char>(png[60] ^ 1);
  EXPECT_TRUE(refusal(png).starts_with("cat.jpg: not a readable PNG: ")) << refusal(png);
}

TEST(Picture, TooManyPixelsAreRefusedBeforeTheyAreDecoded) {
  EXPECT_EQ(refusal(read_file(folder() / "420.jpg"), 23 * 17 - 1),
            "cat.jpg: 23 × 17 pixels are more than the 390 that are decoded; make it smaller");
  EXPECT_EQ(refusal(read_file(folder() / "420.jpg"), 23 * 17), "decoded");
  // The header's size alone.
  std::string jpeg = read_file(folder() / "420.jpg");
  const size_t frame = jpeg.find("\xFF\xC0");
  for (const size_t at : {5, 6, 7, 8}) jpeg[frame + at] = at % 2 == 1 ? '\xFF' : '\xDC';
  const auto expect_refused = [](const std::string& bytes, const std::string& size) {
    EXPECT_EQ(refusal(bytes), "cat.jpg: " + size +
                                  " pixels are more than the 89478485 that are decoded; make it "
                                  "smaller");
  };
  expect_refused(jpeg, "65500 × 65500");
  for (const size_t at : {5, 6, 7, 8}) jpeg[frame + at] = at % 2 == 1 ? '\x4E' : '\x20';
  expect_refused(jpeg, "20000 × 20000");
  expect_refused(png_of_size(20000, 20000), "20000 × 20000");
  expect_refused(png_of_size(0x7FFFFFFF, 0x7FFFFFFF), "2147483647 × 2147483647");
  expect_refused(webp_of_size(20000, 20000), "20000 × 20000");
  EXPECT_EQ(refusal(png_of_size(2'000'000, 1)),
            "cat.jpg: 2000000 × 1 pixels: a side may have at most 1048576");
}

// Some 60 KiB each that would unpack to 60 MiB.
TEST(Picture, WhatStandsBesideAPngsPixelsIsNotUnpacked) {
  const std::string packed = compressed_mebibytes(60);
  const std::string xmp("XML:com.adobe.xmp\0\1\0\0\0", 22);
  std::string chunks;
  for (int i = 0; i < 20; ++i) {
    chunks += png_chunk("zTXt", std::string("text\0\0", 6) + packed);
    chunks += png_chunk("iTXt", xmp + packed);
  }
  chunks += png_chunk("iCCP", std::string("profile\0\0", 9) + packed);
  const std::string png = png_with(chunks), plain = read_file(folder() / "rgb.png");
  const int64_t before = peak_bytes();
  const Picture picture = decode_picture(bytes_of(png), "bomb.png");
  EXPECT_LT(peak_bytes() - before, int64_t{16} << 20);
  EXPECT_EQ(picture.rgb, decode_picture(bytes_of(plain), "rgb.png").rgb);
}

TEST(Picture, LongHarmlessChunksOfAPngArePassedOver) {
  const std::string long_text = png_chunk("tEXt", std::string(size_t{9} << 20, 'a'));
  EXPECT_EQ(refusal(png_with(long_text)), "decoded");
}

// Each scan is a walk over the whole picture, for a few bytes.
TEST(Picture, AJpegOfThousandsOfScansIsRefused) {
  const std::string jpeg = read_file(folder() / "progressive.jpg");
  const size_t last = jpeg.rfind("\xFF\xDA"), end = jpeg.rfind("\xFF\xD9");
  const auto with_scans = [&](int more) {
    std::string out = jpeg.substr(0, end);
    for (int i = 0; i < more; ++i) out += jpeg.substr(last, end - last);
    return out + jpeg.substr(end);
  };
  EXPECT_EQ(refusal(with_scans(0)), "decoded");
  EXPECT_EQ(refusal(with_scans(50)), "decoded");
  EXPECT_EQ(refusal(with_scans(2000)),
            "cat.jpg: not a readable JPEG: it has more than 100 scans; save it again");
}

}  // namespace
}  // namespace snug::files
