// SPDX-License-Identifier: Apache-2.0
#include "files/weights/convert.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "files/weights/gguf/gguf.h"
#include "files/weights/pth/zip.h"
#include "formats_testing.h"

namespace snug::files {
namespace {

// The value of a half by its definition.
double half_value(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const double fraction = half & 1023;
  const double magnitude = exponent == 0    ? std::ldexp(fraction, -24)
                           : exponent == 31 ? std::numeric_limits<double>::infinity()
                                            : std::ldexp(1024 + fraction, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

bool is_nan_half(uint16_t half) { return (half & 0x7FFF) > 0x7C00; }

TEST(Convert, EveryHalfHasItsValue) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> wide(halves.size());
  f16_to_f32(halves.data(), wide.data(), static_cast<int64_t>(halves.size()));
  for (const uint16_t half : halves) {
    const auto bits = std::bit_cast<uint32_t>(wide[half]);
    EXPECT_EQ(bits, std::bit_cast<uint32_t>(half_to_float(half))) << half;
    if (is_nan_half(half))
      EXPECT_TRUE(std::isnan(wide[half])) << half;
    else
      EXPECT_EQ(static_cast<double>(wide[half]), half_value(half)) << half;
  }
}

TEST(Convert, RoundsAsTorchDoes) {
  const auto file = open_safetensors(data_file("rounding.safetensors"));
  const std::vector<float> wide = read_floats(*file, *file->find("f32"));
  std::vector<uint16_t> found(wide.size()), expected(wide.size());
  for (const auto& [key, type] : {std::pair{"bf16", DType::BF16}, {"f16", DType::F16}}) {
    file->read(*file->find("f32"), type, found.data());
    file->read(*file->find(key), type, expected.data());
    for (size_t i = 0; i < wide.size(); ++i)
      ASSERT_EQ(found[i], expected[i]) << key << " of " << wide[i];
  }
}

TEST(Convert, PlainPathHasTheBitsOfTheInstructions) {
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    float eight[8];
    uint16_t fast[8];
    std::fill(std::begin(eight), std::end(eight), value);
    f32_to_f16(eight, fast, 8);
    ASSERT_EQ(float_to_half(value), fast[7]) << std::bit_cast<uint32_t>(value);
  }
}

// Groups of sixteen go through instructions, what is left over through plain code.
TEST(Convert, BfloatGroupsHaveTheBitsOfThePlainPath) {
  std::mt19937 random(2);
  std::vector<float> values(1003);
  std::vector<uint16_t> found(values.size());
  for (int round = 0; round < 200; ++round) {
    for (float& value : values) {
      // Every fourth one among the infinities and what is no number.
      const auto bits = static_cast<uint32_t>(random());
      value = std::bit_cast<float>(bits % 4 == 0 ? bits | 0x7F800000 : bits);
    }
    f32_to_bf16(values.data(), found.data(), static_cast<int64_t>(values.size()));
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(float_to_bfloat(values[i]), found[i]) << std::bit_cast<uint32_t>(values[i]);
  }
}

TEST(Convert, NanStaysNanAndOverflowIsInfinite) {
  const float values[] = {std::numeric_limits<float>::quiet_NaN(),
                          std::bit_cast<float>(uint32_t{0x7F800001}),
                          std::bit_cast<float>(uint32_t{0xFFFFFFFF}),
                          65520.0f,
                          -1e30f,
                          std::numeric_limits<float>::max()};
  uint16_t bf16[6], f16[6];
  f32_to_bf16(values, bf16, 6);
  f32_to_f16(values, f16, 6);
  for (int i = 0; i < 3; ++i) {
    EXPECT_GT(bf16[i] & 0x7FFF, 0x7F80) << i;
    EXPECT_TRUE(is_nan_half(f16[i])) << i;
  }
  EXPECT_EQ(f16[3], 0x7C00);
  EXPECT_EQ(f16[4], 0xFC00);
  EXPECT_EQ(bf16[5], 0x7F80);
}

TEST(Convert, DequantizesAsGgufDoes) {
  expect_same_tensors(*GgufFile::open(data_file("quants.gguf")), "quants.expected.safetensors");
}

TEST(DTypes, CountBytesWithoutOverflow) {
  EXPECT_EQ(bytes_for(DType::Q4_K, 512), 288);
  EXPECT_EQ(bytes_for(DType::BF16, 3), 6);
  expect_refused([] { bytes_for(DType::F64, INT64_MAX / 4); }, {"63 bits"});
  expect_refused([] { bytes_for(DType::Q8_0, 33); }, {"33", "Q8_0", "32"});
  expect_refused([] { bytes_for(DType::F32, -1); }, {"-1"});
  expect_refused(
      [] {
        count_elements(std::vector<int64_t>{int64_t{1} << 40, int64_t{1} << 40});
      },
      {"63 bits"});
  expect_refused([] { count_elements(std::vector<int64_t>{2, -2}); }, {"[2, -2]", "negative"});
  EXPECT_EQ(count_elements(std::vector<int64_t>{INT64_MAX, 0, INT64_MAX}), 0);
  EXPECT_EQ(count_elements(std::vector<int64_t>{}), 1);
}

TEST(DTypes, RowsMustBeWholeBlocks) {
  expect_refused([] { make_tensor_info("x", DType::Q4_0, {32, 8}); }, {"rows of 8", "Q4_0"});
}

TEST(Crc32, KnownValueWholeAndInPieces) {
  const std::string text = "123456789";
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(crc32(bytes), 0xCBF43926u);
  EXPECT_EQ(crc32(bytes.subspan(4), crc32(bytes.first(4))), 0xCBF43926u);
}

}  // namespace
}  // namespace snug::files
