// How many cases of a long list run. On the cpu: all of them. On a GPU a run of the tiny model
// costs little arithmetic but thousands of launches and copies, and GPUs are met for minutes, so
// that a sample is taken, the same one each time. SNUG_TEST_SAMPLE=N sets its size on either, `all`
// takes all. What was left out is said in the test's output.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "support/test_device.h"

namespace snug::tests {

// Cases of each list, and a measure for loops over trials; 0: all.
inline int64_t sample_size() {
  constexpr int64_t kOnAGpu = 4;
  const char* asked = std::getenv("SNUG_TEST_SAMPLE");
  if (asked == nullptr) return test_device().is_cpu() ? 0 : kOnAGpu;
  return std::string(asked) == "all" ? 0 : std::max(1, std::atoi(asked));
}

inline void say_sample(int64_t taken, int64_t of, const std::string& what) {
  if (taken < of)
    std::printf("[  SAMPLE  ] %lld of %lld %s (SNUG_TEST_SAMPLE=all takes all)\n",
                static_cast<long long>(taken), static_cast<long long>(of), what.c_str());
}

// Which of `count` cases run, ascending. Another seed draws others.
inline std::vector<size_t> sample_of(size_t count, uint32_t seed, const std::string& what) {
  std::vector<size_t> chosen(count);
  std::iota(chosen.begin(), chosen.end(), size_t{0});
  const int64_t size = sample_size();
  if (size == 0 || static_cast<size_t>(size) >= count) return chosen;
  std::mt19937 random(seed);
  for (size_t i = 0; i < static_cast<size_t>(size); ++i)
    std::swap(chosen[i], chosen[i + random() % (count - i)]);
  chosen.resize(static_cast<size_t>(size));
  std::ranges::sort(chosen);
  say_sample(size, static_cast<int64_t>(count), what);
  return chosen;
}

// Of `trials` random ones, four times as many as of a list.
inline int trials_of(int trials) {
  const int64_t taken = sample_size() == 0 ? trials : std::min<int64_t>(trials, 4 * sample_size());
  say_sample(taken, trials, "trials");
  return static_cast<int>(taken);
}

// The case after case n of a sequence whose length shows in its last one: the first ones densely,
// later ones ever more sparsely.
inline int64_t next_case(int64_t n) {
  return sample_size() == 0 ? n + 1 : n + 1 + n / (10 * sample_size());
}

}  // namespace snug::tests
