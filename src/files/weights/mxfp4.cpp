// SPDX-License-Identifier: Apache-2.0
#include "files/weights/mxfp4.h"

#include <array>
#include <cmath>

#include "base/error.h"

namespace snug::files {
namespace {

constexpr std::array<float, 16> kCodes = {0.f,  0.5f,  1.f,  1.5f,  2.f,  3.f,  4.f,  6.f,
                                          -0.f, -0.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};

}  // namespace

void dequantize_mxfp4(std::span<const uint8_t> blocks, std::span<const uint8_t> scales,
                      float* out) {
  SNUG_CHECK(std::ssize(blocks) == kMxfp4Bytes * std::ssize(scales), "{} bytes of {} MXFP4 blocks",
             blocks.size(), scales.size());
  const uint8_t* codes = blocks.data();
  for (const uint8_t exponent : scales) {
    const float scale = std::ldexp(1.f, exponent - 127);
    for (int64_t byte = 0; byte < kMxfp4Bytes; ++byte, ++codes) {
      *out++ = kCodes[*codes & 15] * scale;
      *out++ = kCodes[*codes >> 4] * scale;
    }
  }
}

}  // namespace snug::files
