// Dropout: how many are kept, that the rest is scaled, and that the mask is the key's alone.
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

}  // namespace
}  // namespace snug::kernels::cpu
