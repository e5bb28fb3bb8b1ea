// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/dynamic_map.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"

namespace snug::kernels {
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
  const float* positive = map.values + (with_sign ? 127 : 0);  // 0, then decade by decade
  const int first = with_sign ? 1 : 2;                         // steps of the lowest decade
  for (int n = 1, begin = 1; n <= kDecades + 1; ++n) {
    const float border = (positive[begin - 1] + positive[begin]) / 2;
    if (n > kDecades) {
      map.top = border;
      map.borders[n - 1] = std::numeric_limits<float>::infinity();
      break;
    }
    map.borders[n - 1] = border;
    const int lowest = lowest_decade(std::ilogb(border));
    SNUG_CHECK(lowest == n - 1 && lowest_decade(std::ilogb(border) + 1) <= n,
               "numbers about {} lie in decade {}, not {}", border, n, lowest);
    const int steps = first << (n - 1);
    map.encode_scale[n] = static_cast<float>(std::pow(10.0, kDecades - n) * steps / 0.9);
    map.encode_offset[n] = static_cast<float>(steps * (1 - 0.1 / 0.9));
    map.decode_scale[with_sign ? n - 1 : n] = static_cast<float>(std::pow(10.0, n - 1 - kDecades));
    begin += steps;
  }
  map.encode_offset[0] = with_sign ? 0.0f : 1.0f;
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

}  // namespace snug::kernels
