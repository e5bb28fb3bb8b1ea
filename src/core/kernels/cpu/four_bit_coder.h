// Tables to encode a number in [-1, 1] as the 4-bit code of the nearest value. 15 thresholds
// separate the values; a number equal to a threshold gets the lower value.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/kernels/quantized_matrix.h"

namespace snug::kernels::cpu {

struct FourBitCoder {
  alignas(64) float borders[16];  // ascending; the last is infinity
  uint8_t code_of_rank[16];

  // The same in 32 bins with at most one border each. Bins by magnitude: the upper 16 are for
  // positive numbers, the lower 16 for the others, each bin a sixteenth of [0, 1] (kBinScale times
  // a little less). Otherwise they go from -1 to 1. A number above (by magnitude) its bin's border
  // has code `above`, else `below`.
  bool by_magnitude;
  alignas(64) float bin_borders[32];
  alignas(64) int32_t below[32];
  alignas(64) int32_t above[32];
};

// Numbers are multiplied by this before binning, so that 1 (after rounding) falls in the last bin.
static constexpr float kBinScale = 0.999f;

// The coder for a format in 4 bits.
const FourBitCoder& coder_of(QuantizedFormat format);

}  // namespace snug::kernels::cpu
