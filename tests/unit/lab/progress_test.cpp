// SPDX-License-Identifier: Apache-2.0
#include "lab/run/progress.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "support/temp_folder.h"

namespace snug::lab {
namespace {

RowResult fitting(int64_t mib, const std::string& reason = "") {
  RowResult result{.id = "a", .outcome = Outcome::Ok, .reason = reason, .limit_bytes = 100 * kMiB};
  result.predicted = Figures{.peak_allocated = mib * kMiB, .step_seconds = 0.5};
  return result;
}

TEST(RowLine, SaysWhatARowTakes) {
  EXPECT_EQ(row_line(3, 14, 1, fitting(50), false),
            "[ 3/14] a  ok      50.00 MiB of 100.00 MiB, 0.50 s/step");
  EXPECT_EQ(row_line(1, 2, 1, fitting(98), true),
            "[1/2] a  ok      98.00 MiB of 100.00 MiB (close), 0.50 s/step (kept)");
}

TEST(RowLine, ARemarkStandsBehindTheFigures) {
  EXPECT_EQ(row_line(1, 1, 1, fitting(50, "the log was cut\nand more"), false),
            "[1/1] a  ok      50.00 MiB of 100.00 MiB, 0.50 s/step; the log was cut");
}

// Plans of several rows warn while another row ends; no line may stand within another.
TEST(Progress, LinesOfSeveralThreadsStayWhole) {
  const test::TempFolder folder;
  constexpr int kThreads = 4, kLines = 2000;
  std::FILE* out = std::fopen((folder / "said").c_str(), "w");
  ASSERT_NE(out, nullptr);
  {
    Progress progress(out, true);
    progress.begin_suite("s", kThreads * kLines, 1);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < kLines; ++i) {
          if (i % 2 == 0) progress.show({.id = "row", .doing = "planning", .live = {}});
          progress.say("<" + std::to_string(t * kLines + i) + ">");
        }
      });
    for (std::thread& thread : threads) thread.join();
  }
  std::fclose(out);
  std::ifstream in(folder / "said");
  std::set<std::string> found;
  for (std::string line; std::getline(in, line);) {
    const size_t begin = line.find('<');
    if (begin == std::string::npos) continue;  // of the two lines that are redrawn
    EXPECT_TRUE(line.ends_with('>')) << line;
    EXPECT_TRUE(found.insert(line.substr(begin)).second) << line;
  }
  EXPECT_EQ(found.size(), static_cast<size_t>(kThreads * kLines));
}

}  // namespace
}  // namespace snug::lab
