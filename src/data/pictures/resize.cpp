// SPDX-License-Identifier: Apache-2.0
#include "data/pictures/resize.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>
#include <vector>

#include "base/error.h"

namespace snug::data {
namespace {

constexpr int kMostFractionBits = 22;
constexpr int64_t kChannels = 3;

double sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

struct Filter {
  double support;  // half its width on a picture that is not made smaller
  double (*weight)(double);
  bool fits_16_bits = false;  // weights are kept in so many, as torchvision does
};

Filter filter_of(Resampling resampling) {
  switch (resampling) {
    case Resampling::Box:
      return {0.5, [](double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }};
    case Resampling::Bilinear:
      return {1, [](double x) { return std::max(0.0, 1 - std::abs(x)); }, true};
    case Resampling::Hamming:
      return {1, [](double x) {
                x = std::abs(x);
                if (x == 0) return 1.0;
                if (x >= 1) return 0.0;
                x *= std::numbers::pi;
                return std::sin(x) / x * (0.54 + 0.46 * std::cos(x));
              }};
    case Resampling::Bicubic:
      return {2, bicubic, true};
    case Resampling::Lanczos:
      return {3, [](double x) { return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0.0; }};
    case Resampling::Nearest:
      break;
  }
  SNUG_CHECK(false, "no filter {}", static_cast<int>(resampling));
}

// Which inputs each output is a sum of, and by what weights.
struct Weights {
  int64_t width = 0;             // weights an output has room for
  int fraction_bits = 0;         // of a weight
  std::vector<int64_t> first;    // (outputs): the first input
  std::vector<int64_t> count;    // (outputs)
  std::vector<int32_t> weights;  // (outputs, width), fixed point
};

// As many as leave the largest weight below 2^15.
int bits_that_fit(double largest) {
  int bits = 0;
  while (bits < kMostFractionBits && largest * (1 << (bits + 1)) + 0.5 < 1 << 15) ++bits;
  return bits;
}

int32_t fixed_point(double weight, int bits) {
  const double scaled = weight * (1 << bits);
  return static_cast<int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
}

// An output's inputs, and their weights.
struct Window {
  int64_t begin = 0;
  std::vector<double> weights;  // they sum up to 1
};

Window window_of(const Filter& filter, int64_t output, int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double stretch = std::max(scale, 1.0), support = filter.support * stretch;
  const double centre = (static_cast<double>(output) + 0.5) * scale;
  const int64_t begin = std::max<int64_t>(0, static_cast<int64_t>(centre - support + 0.5));
  const int64_t end = std::min(from, static_cast<int64_t>(centre + support + 0.5));
  Window window{begin, {}};
  double sum = 0;
  for (int64_t k = begin; k < end; ++k) {
    const double at = (static_cast<double>(k) - centre + 0.5) * (1.0 / stretch);
    sum += window.weights.emplace_back(filter.weight(at));
  }
  if (sum != 0)
    for (double& weight : window.weights) weight /= sum;
  return window;
}

int fraction_bits_of(const Filter& filter, int64_t from, int64_t to) {
  if (!filter.fits_16_bits) return kMostFractionBits;
  double largest = 0;
  for (int64_t i = 0; i < to; ++i)
    for (const double weight : window_of(filter, i, from, to).weights)
      largest = std::max(largest, weight);
  return bits_that_fit(largest);
}

// Windows are made one at a time, twice where their largest weight counts: of a long picture all of
// them are gigabytes as doubles.
Weights weights_of(const Filter& filter, int64_t from, int64_t to) {
  Weights result;
  const double stretch = std::max(static_cast<double>(from) / static_cast<double>(to), 1.0);
  result.width = static_cast<int64_t>(std::ceil(filter.support * stretch)) * 2 + 1;
  result.fraction_bits = fraction_bits_of(filter, from, to);
  result.weights.resize(static_cast<size_t>(to * result.width));
  for (int64_t i = 0; i < to; ++i) {
    const Window window = window_of(filter, i, from, to);
    result.first.push_back(window.begin);
    result.count.push_back(std::ssize(window.weights));
    std::ranges::transform(
        window.weights, result.weights.begin() + i * result.width,
        [&](double weight) { return fixed_point(weight, result.fraction_bits); });
  }
  return result;
}

uint8_t rounded(int32_t sum, int fraction_bits) {
  return static_cast<uint8_t>(std::clamp(sum >> fraction_bits, 0, 255));
}

// What makes the cut of fraction bits a rounding. Sums begin with it.
int32_t half(const Weights& weights) { return 1 << (weights.fraction_bits - 1); }

void resize_row(const uint8_t* in, const Weights& columns, uint8_t* out) {
  const auto width = static_cast<int64_t>(columns.first.size());
  for (int64_t x = 0; x < width; ++x, out += kChannels) {
    const uint8_t* pixel = in + columns.first[x] * kChannels;
    const int32_t* weight = columns.weights.data() + x * columns.width;
    int32_t red = half(columns), green = red, blue = red;
    for (int64_t k = 0; k < columns.count[x]; ++k, pixel += kChannels) {
      red += pixel[0] * weight[k];
      green += pixel[1] * weight[k];
      blue += pixel[2] * weight[k];
    }
    out[0] = rounded(red, columns.fraction_bits);
    out[1] = rounded(green, columns.fraction_bits);
    out[2] = rounded(blue, columns.fraction_bits);
  }
}

// Row y of the result, out of rows that lie `bytes` apart; `sums` is scratch of that many.
void mix_rows(const uint8_t* rows, int64_t bytes, const Weights& mix, int64_t y, int32_t* sums,
              uint8_t* out) {
  std::fill_n(sums, bytes, half(mix));
  for (int64_t k = 0; k < mix.count[y]; ++k) {
    const int32_t weight = mix.weights[y * mix.width + k];
    const uint8_t* row = rows + (mix.first[y] + k) * bytes;
    for (int64_t i = 0; i < bytes; ++i) sums[i] += row[i] * weight;
  }
  for (int64_t i = 0; i < bytes; ++i) out[i] = rounded(sums[i], mix.fraction_bits);
}

// The input that is nearest to each output, found by adding up steps, as Pillow finds it.
std::vector<int64_t> nearest(int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  std::vector<int64_t> inputs;
  double at = scale * 0.5;
  for (int64_t i = 0; i < to; ++i, at += scale)
    inputs.push_back(std::min(static_cast<int64_t>(at), from - 1));
  return inputs;
}

void take_nearest(const uint8_t* pixels, Extent from, uint8_t* out, Extent to) {
  const std::vector<int64_t> columns = nearest(from.width, to.width);
  for (const int64_t y : nearest(from.height, to.height))
    for (const int64_t x : columns) {
      std::copy_n(pixels + (y * from.width + x) * kChannels, kChannels, out);
      out += kChannels;
    }
}

// A side that keeps its length is not filtered.
void resize_width(const uint8_t* pixels, Extent from, const Filter& filter, uint8_t* out,
                  int64_t width) {
  if (width == from.width) {
    std::copy_n(pixels, from.width * from.height * kChannels, out);
    return;
  }
  const Weights columns = weights_of(filter, from.width, width);
  for (int64_t y = 0; y < from.height; ++y)
    resize_row(pixels + y * from.width * kChannels, columns, out + y * width * kChannels);
}

void resize_height(const uint8_t* pixels, Extent from, const Filter& filter, uint8_t* out,
                   int64_t height) {
  const int64_t row_bytes = from.width * kChannels;
  if (height == from.height) {
    std::copy_n(pixels, from.height * row_bytes, out);
    return;
  }
  const Weights mix = weights_of(filter, from.height, height);
  std::vector<int32_t> sums(static_cast<size_t>(row_bytes));
  for (int64_t y = 0; y < height; ++y)
    mix_rows(pixels, row_bytes, mix, y, sums.data(), out + y * row_bytes);
}

}  // namespace

void resize(const uint8_t* pixels, Extent from, Resampling resampling, uint8_t* out, Extent to) {
  SNUG_CHECK(from.width > 0 && from.height > 0 && to.width > 0 && to.height > 0,
             "{} × {} to {} × {}", from.width, from.height, to.width, to.height);
  if (resampling == Resampling::Nearest) return take_nearest(pixels, from, out, to);
  const Filter filter = filter_of(resampling);
  std::vector<uint8_t> between(static_cast<size_t>(to.width * from.height * kChannels));
  resize_width(pixels, from, filter, between.data(), to.width);
  resize_height(between.data(), {to.width, from.height}, filter, out, to.height);
}

}  // namespace snug::data
