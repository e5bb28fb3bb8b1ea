// MXFP4 (Open Compute Project, Microscaling Formats 1.0) as transformers stores gpt-oss's experts:
// a block is 32 numbers of 4 bits with one scale of 8, and both are tensors of their own,
// "<name>_blocks" (…, rows, blocks in a row, 16) and "<name>_scales" (…, rows, blocks in a row).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace snug::files {

inline constexpr int64_t kMxfp4Elements = 32;  // of a block
inline constexpr int64_t kMxfp4Bytes = 16;

// Whole blocks: the 4-bit codes (sign, two bits of exponent, one of fraction; the first of two in a
// byte is the low one) times 2^(scale - 127). Every product but for scale 255 is a number that
// bfloat16 holds exactly.
void dequantize_mxfp4(std::span<const uint8_t> blocks, std::span<const uint8_t> scales, float* out);

}  // namespace snug::files
