// How many cases of a long list run: the entry's share (drawn_cases.h), all without one. On a GPU a
// run of the tiny model costs little arithmetic but thousands of launches and copies, and GPUs are
// met for minutes, so that a few are taken there; SNUG_TEST_SAMPLE=N says how many on either
// device, `all` takes all.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "support/drawn_cases.h"
#include "support/test_device.h"

namespace snug::tests {

// Cases of each list, and a measure for loops over trials; 0: the entry's share.
inline int64_t sample_size() {
  constexpr int64_t kOnAGpu = 4;
  const std::string asked = variable("SNUG_TEST_SAMPLE");
  if (asked.empty()) return test_device().is_cpu() ? 0 : kOnAGpu;
  return asked == "all" ? 0 : std::max(1, std::atoi(asked.c_str()));
}

// Which of `count` cases run, ascending. `what` also tells one list's draw from another's.
inline std::vector<size_t> sample_of(size_t count, const std::string& what) {
  const auto size = static_cast<size_t>(sample_size());
  return size == 0 ? drawn_of(count, what) : drawn_of(count, std::min(size, count), what);
}

// Which of `count` random trials run; on a GPU four times as many as of a list. Each draws from
// its own trial_random, so that it is the same trial whichever others run.
inline std::vector<size_t> trials_of(size_t count, const std::string& what) {
  const auto size = 4 * static_cast<size_t>(sample_size());
  return size == 0 ? drawn_of(count, what) : drawn_of(count, std::min(size, count), what);
}

inline std::mt19937 trial_random(uint32_t seed, size_t trial) {
  std::seed_seq both{seed, static_cast<uint32_t>(trial)};
  return std::mt19937(both);
}

// The case after case n of a sequence whose length shows in its last one: the first ones densely,
// later ones ever more sparsely.
inline int64_t next_case(int64_t n) {
  const int64_t dense = sample_size() > 0 ? 10 * sample_size() : one_of() > 1 ? 40 : n + 1;
  return n + 1 + n / dense;
}

}  // namespace snug::tests
