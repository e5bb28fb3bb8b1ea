// The searches for the scales of ggml's block formats, for quantize.cpp: the candidates of ggml's
// reference quantizers, and the same float operations in the same order. Errors are weighted:
// `weights` has one for each element.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>

#include "files/weights/gguf/lanes.h"

namespace snug::files::blocks {

// Groups below this magnitude count as zero.
constexpr float kNothing = 1e-15f;

// For codes from -kHalf to kHalf - 1: among 19 steps around that which maps a group's largest value
// to -kHalf, the one whose best scale leaves the least error. `codes` are those of that step, plus
// kHalf (0 in a group of nothing).
template <int size, int kHalf>
[[gnu::always_inline]] inline void search_scale(const Lanes* x, const Lanes* weights, Lanes& scale,
                                                Ints* codes) {
  Lanes magnitude{}, largest{};
  for (int i = 0; i < size; ++i) {
    Lanes own;
    magnitude_of(x[i], own);
    largest = own > magnitude ? x[i] : largest;
    magnitude = own > magnitude ? own : magnitude;
  }
  const Ints nothing = magnitude < kNothing;
  Lanes best{}, best_inverse{};
  const auto consider = [&](float steps, bool first) __attribute__((always_inline)) {
    const Lanes inverse = -steps / largest;
    Lanes products{}, squares{};
    for (int i = 0; i < size; ++i) {
      Ints code;
      code_of(x[i], inverse, -kHalf, kHalf - 1, code);
      const Lanes l = __builtin_convertvector(code, Lanes);
      products += weights[i] * x[i] * l;
      squares += weights[i] * l * l;
    }
    const Ints better =
        first ? Ints{} - 1 : (squares > 0.0f) & (products * products > best * squares);
    const Lanes own = squares != 0.0f ? products / squares : Lanes{};
    scale = better ? own : scale;
    best = better ? own * products : best;
    best_inverse = better ? inverse : best_inverse;
  };
  consider(kHalf, true);
  for (int step = -9; step <= 9; ++step)
    if (step != 0) consider(kHalf + 0.1f * static_cast<float>(step), false);
  scale = nothing ? Lanes{} : scale;
  for (int i = 0; i < size; ++i) {
    code_of(x[i], best_inverse, -kHalf, kHalf - 1, codes[i]);
    codes[i] = nothing ? Ints{} : codes[i] + kHalf;
  }
}

// Which steps are tried for a scale and a minimum: the range divided by kMost + first,
// kMost + first + width, and so on.
struct Steps {
  float first, width;
  int last;
};

// For a scale, a minimum and codes from 0 to kMost in groups of 32. Of each step tried, the scale
// and minimum of the weighted least squares; of these, those with the least error. `floor` is minus
// the minimum; codes are those of the step that was chosen. `sum_w` is the sum of the weights.
constexpr int kUnsigned = 32;

template <int kMost>
[[gnu::always_inline]] inline void search_scale_and_floor(const Lanes* x, const Lanes* weights,
                                                          const Steps& steps, Lanes& scale,
                                                          Lanes& floor, Lanes& sum_w, Ints* codes) {
  Lanes minimum = x[0], maximum = x[0], sum_x = weights[0] * x[0];
  sum_w = weights[0];
  for (int i = 1; i < kUnsigned; ++i) {
    minimum = x[i] < minimum ? x[i] : minimum;
    maximum = x[i] > maximum ? x[i] : maximum;
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  minimum = minimum > 0.0f ? Lanes{} : minimum;
  const Ints flat = maximum == minimum;
  floor = -minimum;

  Lanes inverse = static_cast<float>(kMost) / (maximum - minimum), begin = minimum;
  scale = 1.0f / inverse;
  Lanes least{};
  for (int i = 0; i < kUnsigned; ++i) {
    Ints code;
    code_of(x[i] - minimum, inverse, 0, kMost, code);
    const Lanes error = scale * __builtin_convertvector(code, Lanes) + minimum - x[i];
    least += weights[i] * (error * error);
  }
  for (int step = 0; step <= steps.last; ++step) {
    const Lanes tried =
        (steps.first + steps.width * static_cast<float>(step) + kMost) / (maximum - minimum);
    Ints own[kUnsigned];
    Lanes sum_l{}, sum_l2{}, sum_xl{};
    for (int i = 0; i < kUnsigned; ++i) {
      code_of(x[i] - minimum, tried, 0, kMost, own[i]);
      const Lanes l = __builtin_convertvector(own[i], Lanes);
      sum_l += weights[i] * l;
      sum_l2 += weights[i] * l * l;
      sum_xl += weights[i] * l * x[i];
    }
    const Lanes determinant = sum_w * sum_l2 - sum_l * sum_l;
    Lanes own_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    Lanes own_minimum = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    own_scale = own_minimum > 0.0f ? sum_xl / sum_l2 : own_scale;
    own_minimum = own_minimum > 0.0f ? Lanes{} : own_minimum;
    Lanes errors{};
    for (int i = 0; i < kUnsigned; ++i) {
      const Lanes error = own_scale * __builtin_convertvector(own[i], Lanes) + own_minimum - x[i];
      errors += weights[i] * (error * error);
    }
    const Ints better = (determinant > 0.0f) & (errors < least);
    least = better ? errors : least;
    inverse = better ? tried : inverse;
    begin = better ? minimum : begin;
    scale = better ? own_scale : scale;
    minimum = better ? own_minimum : minimum;  // the next step begins there
  }
  scale = flat ? Lanes{} : scale;
  floor = flat ? floor : -minimum;
  for (int i = 0; i < kUnsigned; ++i) {
    code_of(x[i] - begin, inverse, 0, kMost, codes[i]);
    codes[i] = flat ? Ints{} : codes[i];
  }
}

// A block's scales of groups, as codes of six bits times a step.
struct SixBits {
  float step = 0;
  uint8_t codes[kLanes] = {};
};

// The largest value gets the largest code.
[[gnu::always_inline]] inline SixBits six_bits_of(const Lanes& values) {
  float largest = 0;
  for (int g = 0; g < kLanes; ++g) largest = std::max(largest, static_cast<float>(values[g]));
  SixBits result{.step = largest / 63.0f};
  const float inverse = largest > 0 ? 63.0f / largest : 0;
  for (int g = 0; g < kLanes; ++g)
    result.codes[g] = std::min<uint8_t>(63, static_cast<uint8_t>(round_one(inverse * values[g])));
  return result;
}

// Nine steps are tried; then each code moves as long as that lowers the weighted error.
[[gnu::always_inline]] inline SixBits weighted_six_bits(const Lanes& values, const Lanes& weights) {
  float largest = 0;
  for (int g = 0; g < kLanes; ++g) largest = std::max(largest, static_cast<float>(values[g]));
  if (largest < kNothing) return {};
  const auto code_at = [&](float inverse, int g) {
    return std::min(63, round_one(inverse * values[g]));
  };
  float inverse = 0, least = 0;
  for (const int step : {0, -4, -3, -2, -1, 1, 2, 3, 4}) {
    const float tried = (0.1f * static_cast<float>(step) + 63.0f) / largest;
    const float scale = 1 / tried;
    float error = 0;
    for (int g = 0; g < kLanes; ++g) {
      int code = code_at(tried, g);
      if (step == 0) code = static_cast<uint8_t>(code);  // as ggml does
      const float difference = values[g] - scale * static_cast<float>(code);
      error += weights[g] * difference * difference;
    }
    if (step != 0 && !(error < least)) continue;
    least = error;
    inverse = tried;
  }
  SixBits result;
  float products = 0, squares = 0;
  for (int g = 0; g < kLanes; ++g) {
    result.codes[g] = static_cast<uint8_t>(code_at(inverse, g));
    const auto l = static_cast<float>(code_at(inverse, g));
    products += weights[g] * values[g] * l;
    squares += weights[g] * l * l;
  }
  bool moved = true;
  for (int round = 0; moved && round < 5; ++round) {
    moved = false;
    for (int g = 0; g < kLanes; ++g) {
      const float weight = weights[g], value = values[g];
      const auto l = static_cast<float>(result.codes[g]);
      float own_products = products - weight * value * l;
      float own_squares = squares - weight * l * l;
      if (!(own_products > 0 && own_squares > 0)) continue;
      const int code = std::min(63, round_one(value * own_squares / own_products));
      if (code == result.codes[g]) continue;
      const auto other = static_cast<float>(code);
      own_products += weight * value * other;
      own_squares += weight * other * other;
      if (!(own_products * own_products * squares > products * products * own_squares)) continue;
      result.codes[g] = static_cast<uint8_t>(code);
      products = own_products;
      squares = own_squares;
      moved = true;
    }
  }
  result.step = squares > 0.0f ? products / squares : 0.0f;
  return result;
}

}  // namespace snug::files::blocks
