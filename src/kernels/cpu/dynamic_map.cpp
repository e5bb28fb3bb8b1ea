// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/dynamic_map.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"

namespace snug::kernels::cpu {
namespace {

constexpr int kDecades = 7;

// torch.linspace(0.1, 1, count), which counts up from the start and, from the middle, down from
// the end.
std::vector<float> boundaries(int count) {
  const float start = 0.1f, end = 1.0f;
  const float step = (end - start) / static_cast<float>(count - 1);
  std::vector<float> result;
  for (int i = 0; i < count; ++i) {
    result.push_back(i < count / 2 ? std::fma(step, static_cast<float>(i), start)
                                   : std::fma(-step, static_cast<float>(count - 1 - i), end));
  }
  return result;
}

std::vector<float> ascending_values(bool with_sign) {
  std::vector<float> values = {0.0f, 1.0f};
  for (int decade = 0; decade < kDecades; ++decade) {
    const std::vector<float> edges = boundaries((1 << (with_sign ? decade : decade + 1)) + 1);
    const auto scale = static_cast<float>(std::pow(10.0, decade - (kDecades - 1)));
    for (size_t i = 0; i + 1 < edges.size(); ++i) {
      const float value = scale * ((edges[i] + edges[i + 1]) / 2.0f);
      values.push_back(value);
      if (with_sign) values.push_back(-value);
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

DynamicMap make_map(bool with_sign) {
  DynamicMap map{};
  const std::vector<float> values = ascending_values(with_sign);
  SNUG_CHECK(values.size() == 256, "{} values in an 8-bit map", values.size());
  std::copy(values.begin(), values.end(), map.values);
  for (int i = 0; i < 255; ++i) map.midpoints[i] = (map.values[i] + map.values[i + 1]) / 2;
  map.midpoints[255] = std::numeric_limits<float>::infinity();
  const auto midpoints_below = [&](float x) {
    return std::lower_bound(map.midpoints, map.midpoints + 256, x) - map.midpoints;
  };
  for (int32_t cell = 0; cell < DynamicMap::kNumCells; ++cell) {
    const auto upper_bits = static_cast<uint32_t>(DynamicMap::kFirstCell + cell) << 16;
    const float smallest = cell == 0 ? 0.0f : std::bit_cast<float>(upper_bits);
    const float largest = std::bit_cast<float>(upper_bits | 0xffffu);
    const auto low = midpoints_below(smallest), high = midpoints_below(largest);
    const auto negative_low = midpoints_below(-largest), negative_high = midpoints_below(-smallest);
    SNUG_CHECK(high - low <= 1 && negative_high - negative_low <= 1,
               "cell {} of an 8-bit map has several midpoints", cell);
    map.cells[cell] = static_cast<uint8_t>(low);
    map.cells[DynamicMap::kNumCells + cell] = static_cast<uint8_t>(negative_low);
  }
  return map;
}

}  // namespace

const DynamicMap& signed_dynamic_map() {
  static const DynamicMap map = make_map(true);
  return map;
}

const DynamicMap& unsigned_dynamic_map() {
  static const DynamicMap map = make_map(false);
  return map;
}

}  // namespace snug::kernels::cpu
