// The 8-bit number format of block-wise quantized optimizer states (Dettmers 2016, Dettmers et al.
// 2022), as bitsandbytes' create_dynamic_map makes it: 256 values in [-1, 1] or [0, 1], seven
// decades, each next one with twice the steps of the one below it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace snug::kernels::cpu {

struct DynamicMap {
  // A number's upper 16 bits name its cell: sign, exponent and seven bits of the mantissa, from
  // 2^-23 to 1. No cell has more than one midpoint of neighbouring values in it, so that the
  // nearest value is the cell's lowest or the one after it.
  static constexpr int32_t kFirstCell = 0x3400;  // 2^-23; smaller numbers share its cell
  static constexpr int32_t kNumCells = 0x3f80 - kFirstCell + 1;
  static constexpr int32_t kGatherPadding = 3;  // cells are gathered four bytes at a time

  float values[256];                              // ascending
  float midpoints[256];                           // to the next value; the last one is infinite
  uint8_t cells[2 * kNumCells + kGatherPadding];  // positive ones, then negative ones
};

const DynamicMap& signed_dynamic_map();
const DynamicMap& unsigned_dynamic_map();

}  // namespace snug::kernels::cpu
