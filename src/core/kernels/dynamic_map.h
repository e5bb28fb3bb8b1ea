// The 8-bit number format of block-wise quantized optimizer states (Dettmers 2016, Dettmers et al.
// 2022), as bitsandbytes' create_dynamic_map makes it: 256 values in [-1, 1] or [0, 1]. Apart from
// 0 and 1 they lie in seven decades of equal steps, each decade with twice the steps of the one
// below: value k of decade i is 10^(i-7) (9 m - 8), where m in (1, 2) is k + 1/2 over the decade's
// first k. So a code becomes a number, and a number a code, by arithmetic instead of a search.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace snug::kernels {

struct DynamicMap {
  float values[256];  // ascending

  float top;  // what lies above is nearest to 1
  // Vectors of 16, of which the first 8 count. borders[n] lies between decades n and n + 1; decade
  // 0 is the value 0, above decade 7 there is nothing. Number x of decade n has k = scale[n] x +
  // offset[n], without fraction.
  float borders[16];
  float encode_scale[16];
  float encode_offset[16];
  float decode_scale[16];  // by the exponent of k + 1/2, its lowest three bits
};

// A number in [2^e, 2^(e+1)) lies in this decade or in the next one.
static constexpr int kLowestExponent = -23;
static constexpr int lowest_decade(int exponent) {
  const int above = exponent - kLowestExponent;
  return above < 0 ? 0 : above * 11 >> 5;  // a third, for numbers as small as these
}

const DynamicMap& signed_dynamic_map();
const DynamicMap& unsigned_dynamic_map();

}  // namespace snug::kernels
