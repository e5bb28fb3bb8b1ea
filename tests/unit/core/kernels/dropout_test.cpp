// Dropout: how many are kept, that the rest is scaled, and that the mask is the key's alone; noise
// that is drawn the same way.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "unit/core/kernels/arrays.h"

namespace snug::kernels::cpu {
namespace {

// What becomes of ones.
std::vector<float> mask(double probability, uint64_t key, int64_t count = 100003, int threads = 0) {
  const std::vector<float> ones(static_cast<size_t>(count), 1.F);
  std::vector<float> out(ones.size(), -1.F);
  dropout({.count = count,
           .x = ones.data(),
           .out = out.data(),
           .probability = probability,
           .key = key,
           .num_threads = threads});
  return out;
}

TEST(Dropout, KeepsTheShareAndScalesIt) {
  on_every_isa([] {
    for (const double probability : {0.05, 0.3, 0.9}) {
      const std::vector<float> out = mask(probability, 7);
      double kept = 0;
      for (const float value : out) {
        if (value == 0) continue;
        ASSERT_FLOAT_EQ(value, static_cast<float>(1 / (1 - probability)));
        ++kept;
      }
      const auto count = static_cast<double>(out.size());
      // Six standard deviations of a binomial distribution.
      EXPECT_NEAR(kept, count * (1 - probability),
                  6 * std::sqrt(count * probability * (1 - probability)));
    }
  });
}

TEST(Dropout, TheMaskIsTheKeysAlone) {
  const std::vector<float> expected = mask(0.5, 1234, 100003, 1);
  on_every_isa([&] { EXPECT_EQ(mask(0.5, 1234), expected); });
  // Another key agrees where chance has it: for half of the elements.
  const std::vector<float> other = mask(0.5, 1235);
  double same = 0;
  for (size_t i = 0; i < other.size(); ++i) same += other[i] == expected[i];
  EXPECT_NEAR(same, 50000, 1000);
}

TEST(Dropout, AddsToWhatIsThere) {
  const std::vector<float> once = mask(0.25, 9, 1001);
  std::vector<float> twice = once;
  const std::vector<float> ones(1001, 1.F);
  dropout({.count = 1001,
           .x = ones.data(),
           .out = twice.data(),
           .probability = 0.25,
           .key = 9,
           .accumulate = true});
  for (size_t i = 0; i < once.size(); ++i) EXPECT_FLOAT_EQ(twice[i], 2 * once[i]);
}

TEST(Dropout, ColumnsHaveTheMaskOfTheWholeMatrix) {
  constexpr int64_t kRows = 50, kColumns = 203, kFirst = 64, kOwn = 77;
  const std::vector<float> whole = mask(0.4, 11, kRows * kColumns);
  on_every_isa([&] {
    const std::vector<float> ones(kRows * kOwn, 1.F);
    std::vector<float> out(ones.size());
    dropout({.count = kRows * kOwn,
             .x = ones.data(),
             .out = out.data(),
             .probability = 0.4,
             .key = 11,
             .columns = kOwn,
             .first_column = kFirst,
             .whole_columns = kColumns});
    for (int64_t i = 0; i < kRows * kOwn; ++i)
      ASSERT_EQ(out[i], whole[i / kOwn * kColumns + kFirst + i % kOwn]) << i;
  });
}

// Uniform in each row up to what the row has.
TEST(Noise, IsUniformWithinARowsBounds) {
  constexpr int64_t kColumns = 1003;
  const std::vector<float> sizes = {0.F, 0.5F, 2.F}, start(3 * kColumns, 1.F);
  const auto noisy = [&](uint64_t key, int threads) {
    std::vector<float> out = start;
    dropout({.count = std::ssize(out),
             .x = out.data(),
             .out = out.data(),
             .key = key,
             .num_threads = threads,
             .columns = kColumns,
             .whole_columns = kColumns,
             .noise = sizes.data(),
             .noise_scale = 0.25F});
    return out;
  };
  const std::vector<float> expected = noisy(5, 1);
  on_every_isa([&] { EXPECT_EQ(noisy(5, 0), expected); });
  EXPECT_NE(noisy(6, 1), expected);
  for (int64_t row = 0; row < 3; ++row) {
    const double bound = 0.25 * sizes[static_cast<size_t>(row)];
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < kColumns; ++i) {
      const double drawn = expected[static_cast<size_t>(row * kColumns + i)] - 1.0;
      ASSERT_LE(std::abs(drawn), bound + 1e-6);
      sum += drawn;
      squares += drawn * drawn;
    }
    // A uniform distribution's mean and variance, within six standard deviations.
    EXPECT_NEAR(sum / kColumns, 0, 6 * bound / std::sqrt(3.0 * kColumns));
    EXPECT_NEAR(squares / kColumns, bound * bound / 3,
                6 * bound * bound * 0.3 / std::sqrt(1.0 * kColumns));
  }
}

TEST(Noise, OfSomeRowsIsThatOfAllRows) {
  constexpr int64_t kRows = 8, kColumns = 37;
  std::vector<float> sizes(kRows), whole(kRows * kColumns), part(4 * kColumns), moved = part;
  for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = 0.1F * static_cast<float>(i + 1);
  const auto add = [&](std::vector<float>& x, int64_t first_row, RowPlaces places,
                       const float* of_rows) {
    dropout({.count = std::ssize(x),
             .x = x.data(),
             .out = x.data(),
             .key = 9,
             .columns = kColumns,
             .first_column = first_row * kColumns,
             .whole_columns = kColumns,
             .places = places,
             .noise = of_rows});
  };
  add(whole, 0, {}, sizes.data());
  add(part, 3, {}, sizes.data());  // as ranks that share rows have them
  for (int64_t i = 0; i < 4 * kColumns; ++i) ASSERT_EQ(part[i], whole[3 * kColumns + i]) << i;
  // Rows 2, 3 and 6, 7, as ranks that share sequences have them.
  const std::vector<float> own = {sizes[2], sizes[3], sizes[6], sizes[7]};
  add(moved, 0, {.stretch = 2, .first = 2, .second = 6}, own.data());
  for (int64_t i = 0; i < 2 * kColumns; ++i) {
    ASSERT_EQ(moved[i], whole[2 * kColumns + i]) << i;
    ASSERT_EQ(moved[2 * kColumns + i], whole[6 * kColumns + i]) << i;
  }
}

}  // namespace
}  // namespace snug::kernels::cpu
