// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/four_bit_coder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/error.h"

namespace snug::kernels::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

int rank_of(const FourBitCoder& coder, double x) {
  int rank = 0;
  while (rank < 15 && coder.borders[rank] < x) ++rank;
  return rank;
}

// One bin, from `low` to `high` of the line of numbers.
void fill_bin(FourBitCoder& coder, int bin, double low, double high) {
  const bool downwards = coder.by_magnitude && bin < 16;
  const int first = rank_of(coder, low), last = rank_of(coder, high);
  SNUG_CHECK(last - first <= 1, "{} borders between {} and {}", last - first, low, high);
  const int below = downwards ? last : first, above = downwards ? first : last;
  coder.below[bin] = coder.code_of_rank[below];
  coder.above[bin] = coder.code_of_rank[above];
  coder.bin_borders[bin] = kInfinity;
  if (first == last) return;
  const float border = coder.borders[first];
  // -border itself is beyond, so that what is compared with is the number before it.
  coder.bin_borders[bin] = downwards ? std::nextafter(-border, 0.0f) : border;
}

// Which of two equal values comes first is a matter of the codes: FP4's two zeros.
FourBitCoder make_coder(const float* values, bool by_magnitude) {
  FourBitCoder coder{};
  coder.by_magnitude = by_magnitude;
  std::iota(coder.code_of_rank, coder.code_of_rank + 16, uint8_t{0});
  std::stable_sort(coder.code_of_rank, coder.code_of_rank + 16,
                   [&](uint8_t a, uint8_t b) { return values[a] < values[b]; });
  for (int i = 0; i < 15; ++i) {
    const float lower = values[coder.code_of_rank[i]], upper = values[coder.code_of_rank[i + 1]];
    coder.borders[i] = (lower + upper) / 2;
  }
  coder.borders[15] = kInfinity;
  for (int bin = 0; bin < 16; ++bin) {
    const double low = bin / (16.0 * double{kBinScale});
    const double high = (bin + 1) / (16.0 * double{kBinScale});
    if (by_magnitude) {
      // Numbers above zero, however small, have left the border at zero behind.
      fill_bin(coder, 16 + bin, std::max(low, 1e-45), high);
      fill_bin(coder, bin, -high, -low);
    } else {
      fill_bin(coder, 16 + bin, low, high);
      fill_bin(coder, 15 - bin, -high, -low);
    }
  }
  return coder;
}

}  // namespace

const FourBitCoder& coder_of(QuantizedFormat format) {
  static const std::vector<FourBitCoder> coders = [] {
    std::vector<FourBitCoder> made(kNumFormats);
    for (int i = 0; i < kNumFormats; ++i) {
      const FormatTraits& of = traits(static_cast<QuantizedFormat>(i));
      if (of.four_bits()) made[i] = make_coder(of.values, of.by_magnitude);
    }
    return made;
  }();
  return coders[static_cast<size_t>(format)];
}

}  // namespace snug::kernels::cpu
