// Which cases of long lists run, and which of a suite's parameters. scripts/test asks for a part of
// them: SNUG_TEST_SET is `quick` or `all`, the entry's SNUG_TEST_SHARES (quick:8,all:2; see
// snug_draw_cases in cmake/snug.cmake) says one of how many that is, and SNUG_TEST_SEED, the
// commit's hash, draws them: a week of commits covers what each leaves out. Without SNUG_TEST_SET
// all run. What is left out is said in the output.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace snug::tests {

inline std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// One of how many cases runs, or with SNUG_TEST_SUITES one of how many of a suite's tests.
inline int64_t one_of(const char* of = "SNUG_TEST_SHARES") {
  const std::string set = variable("SNUG_TEST_SET");
  const std::string shares = "," + variable(of);
  const size_t at = set.empty() ? shares.npos : shares.find("," + set + ":");
  return at == shares.npos ? 1 : std::max(1, std::atoi(shares.c_str() + at + set.size() + 2));
}

inline std::mt19937 draw_for(const std::string& what) {
  const std::string text = variable("SNUG_TEST_SEED") + " " + what;
  std::seed_seq seed(text.begin(), text.end());
  return std::mt19937(seed);
}

inline void say_drawn(size_t taken, size_t of, const std::string& what) {
  if (taken < of)
    std::printf("[  DRAWN   ] %zu of %zu %s (all without SNUG_TEST_SET)\n", taken, of,
                what.c_str());
}

// `size` of `count` cases, ascending.
inline std::vector<size_t> drawn_of(size_t count, size_t size, const std::string& what) {
  std::vector<size_t> chosen(count);
  std::iota(chosen.begin(), chosen.end(), size_t{0});
  if (size >= count) return chosen;
  std::mt19937 random = draw_for(what);
  for (size_t i = 0; i < size; ++i) std::swap(chosen[i], chosen[i + random() % (count - i)]);
  chosen.resize(size);
  std::ranges::sort(chosen);
  say_drawn(size, count, what);
  return chosen;
}

// Which of `count` cases run, ascending: one of `share`, by default the entry's; one at least.
inline std::vector<size_t> drawn_of(size_t count, const std::string& what,
                                    int64_t share = one_of()) {
  const auto of = static_cast<size_t>(share);
  return drawn_of(count, (count + of - 1) / of, what);
}

// Leaves out the parameters of each test, and the tests of each suite, that are not drawn. After
// InitGoogleTest.
inline void draw_tests() {
  if (one_of() == 1 && one_of("SNUG_TEST_SUITES") == 1) return;
  std::map<std::string, std::vector<std::string>> cases, suites;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      const std::string name = std::string(suite.name()) + "." + test.name();
      if (test.value_param() != nullptr)
        cases[name.substr(0, name.rfind('/'))].push_back(name);
      else
        suites[suite.name()].push_back(name);
    }
  }
  std::string left_out;
  const auto leave_out = [&](const auto& lists, int64_t share) {
    for (const auto& [what, names] : lists) {
      std::vector<bool> runs(names.size());
      for (const size_t i : drawn_of(names.size(), what, share)) runs[i] = true;
      for (size_t i = 0; i < names.size(); ++i)
        if (!runs[i]) left_out += ":" + names[i];
    }
  };
  leave_out(cases, one_of());
  leave_out(suites, one_of("SNUG_TEST_SUITES"));
  std::string filter = testing::GTEST_FLAG(filter);
  if (filter.find('-') == filter.npos) filter += "-";
  testing::GTEST_FLAG(filter) = filter + left_out;
}

}  // namespace snug::tests
