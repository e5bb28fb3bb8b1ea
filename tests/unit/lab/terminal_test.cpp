// What the lab prints: within the terminal's width, in whole words, with the figure that decides.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "base/bytes.h"
#include "base/files.h"
#include "lab/report/figures.h"
#include "lab/report/reports.h"
#include "lab/report/row_view.h"
#include "lab/run/lab_folder.h"
#include "lab/run/lab_run.h"
#include "lab/run/progress.h"
#include "report/text_width.h"
#include "support/lab_samples.h"
#include "support/temp_folder.h"

namespace snug::lab {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

size_t widest(const std::string& text) {
  size_t columns = 0;
  for (const std::string& line : lines_of(text))
    columns = std::max(columns, report::display_width(line));
  return columns;
}

bool has(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

// A search over 1 to 64 with these tries in this order.
LabRun searched(const std::vector<std::pair<int64_t, Outcome>>& tries) {
  LabRun run;
  run.mode = Mode::Plan;
  Group group{.kind = Group::Kind::Search, .id = "most", .title = "Most", .over = "batch_size"};
  group.largest = 64;
  group.base.group = "most";
  run.suite.groups.push_back(group);
  for (const auto& [value, outcome] : tries) {
    const Row row = search_row(group, value);
    RowResult& result = test::add_row(run, row.id);
    test::row_of(run, row.id) = row;
    result.outcome = outcome;
    if (outcome == Outcome::Ok || outcome == Outcome::OutOfMemory)
      result.predicted = Figures{.fits = outcome == Outcome::Ok, .peak_allocated = value * kMiB};
  }
  return run;
}

std::string unanswered(const LabRun& run) {
  const std::vector<RowView> views = views_of(run);
  return why_unanswered(run.suite.groups[0], tries_of(run.suite.groups[0], views));
}

TEST(SearchAnswer, IsKnownAtTheEdgeAlone) {
  EXPECT_EQ(unanswered(searched({{1, Outcome::Ok}, {2, Outcome::Ok}, {3, Outcome::OutOfMemory}})),
            "");
  EXPECT_EQ(unanswered(searched({{1, Outcome::OutOfMemory}})), "");
  EXPECT_EQ(unanswered(searched({{64, Outcome::Ok}})), "") << "the last that may be tried";
  EXPECT_EQ(unanswered(searched({{1, Outcome::Error}})), "no answer, because 1 ended as error");
  EXPECT_EQ(unanswered(searched({{1, Outcome::Ok}, {2, Outcome::Crashed}})),
            "no answer, because 2 ended as crashed");
  EXPECT_EQ(unanswered(searched({{1, Outcome::Ok}, {8, Outcome::OutOfMemory}})), "no answer yet");
  EXPECT_EQ(unanswered(searched({{1, Outcome::NotRun}})), "not done with these options");
}

TEST(SearchAnswer, ATryThatErredIsNoAnswer) {
  const std::string text = report_text(searched({{1, Outcome::Error}}), 120);
  EXPECT_TRUE(has(text, "Most: no answer, because 1 ended as error; tried 1 !")) << text;
  EXPECT_FALSE(has(text, "none of the values")) << text;
}

TEST(SearchAnswer, TriesStandInTheOrderOfTheirValues) {
  const std::string text = report_text(searched({{1, Outcome::Ok},
                                                 {2, Outcome::Ok},
                                                 {4, Outcome::OutOfMemory},
                                                 {3, Outcome::NotRun},
                                                 {3, Outcome::Ok}}),
                                       120);
  EXPECT_TRUE(has(text, "tried 1 ✓, 2 ✓, 4 ✗") || has(text, "tried 1 ✓, 2 ✓, 3 ✓, 4 ✗")) << text;
}

TEST(Terminal, NoLineIsWiderThanIt) {
  for (const LabRun& run : {test::planned_sample(), test::measured_sample()})
    for (const int width : {40, 60, 80, 100, 120, 200}) {
      const std::string text = report_text(run, width);
      EXPECT_LE(widest(text), static_cast<size_t>(width)) << text;
      const bool says_so = has(text, "Columns left out: ");
      for (const std::string& line : lines_of(text)) {
        if (line.starts_with("Row ")) {
          EXPECT_EQ(says_so, !has(line, "Tokens/s")) << width << "\n" << text;
        }
      }
    }
}

// A long verdict takes two lines and leaves what was published its place.
TEST(Terminal, ALongVerdictIsFolded) {
  const std::string text = report_text(test::planned_sample(), 200);
  const std::vector<std::string> lines = lines_of(text);
  const auto first = std::ranges::find_if(
      lines, [](const std::string& line) { return line.ends_with("  fits where the"); });
  ASSERT_NE(first, lines.end()) << text;
  EXPECT_TRUE((first + 1)->ends_with("  original did not")) << text;
}

TEST(Terminal, APipeGetsWholeLines) {
  const LabRun run = test::planned_sample();
  Suite suite = run.suite;
  suite.rows = run.rows;
  suite.rows[0].change = std::string(300, 'x') + " END";
  EXPECT_TRUE(has(list_rows_text(suite, 0), "x END"));
  const std::string cut = list_rows_text(suite, 80);
  EXPECT_FALSE(has(cut, "END"));
  EXPECT_TRUE(has(cut, "…"));
  for (const std::string& line : lines_of(cut)) {
    if (line.starts_with(suite.rows[0].id)) {
      EXPECT_LE(report::display_width(line), 80U) << line;
    }
  }
}

// ls01 has one number everywhere: the one that has to fit.
TEST(Terminal, ReservedDecidesAndIsSaid) {
  LabRun run;
  run.mode = Mode::Plan;
  RowResult& result = test::add_row(run, "a");
  result.outcome = Outcome::Ok;
  result.limit_bytes = 80 * kGiB;
  result.predicted = Figures{.peak_allocated = 45 * kGiB, .peak_reserved = 47 * kGiB};
  const std::string text = report_text(run, 120);
  EXPECT_TRUE(has(text, "Planned, reserved")) << text;
  EXPECT_TRUE(has(text, "47.0 GiB")) << text;
  EXPECT_FALSE(has(text, "45.0 GiB")) << text;
  EXPECT_TRUE(has(row_line(1, 1, 1, result, false), "47.00 GiB reserved of 80.00 GiB"));
  EXPECT_TRUE(has(report_markdown(run), "47.0 GiB, 45.0 GiB allocated"));
}

TEST(Terminal, WhatARowDidUntilItsTimeWasUpIsShown) {
  LabRun run;
  run.mode = Mode::Run;
  RowResult& result = test::add_row(run, "slow");
  result.outcome = Outcome::TimedOut;
  result.measured = Figures{.peak_allocated = kMiB, .step_seconds = 0.25, .tokens_per_second = 777};
  const std::string text = report_text(run, 120);
  EXPECT_TRUE(has(text, "0.25 s")) << text;
  EXPECT_TRUE(has(text, "777")) << text;
}

TEST(Terminal, ADryRunIsOfPlans) {
  LabRun run = test::measured_sample();
  EXPECT_FALSE(has(lines_of(report_text(run, 120, Shown::PlansOfRuns))[0], "measured"));
  EXPECT_TRUE(has(lines_of(report_text(run, 120))[0], "measured"));
}

TEST(Terminal, WhyARowIsNotRunIsSaidOnce) {
  LabRun run;
  for (const char* id : {"a", "b", "c", "d", "e"})
    test::add_row(run, id).reason = "done with other options before";
  run.rows[0].not_run = run.results[0].reason = "needs 512 devices";
  const std::string text = report_text(run, 120);
  EXPECT_EQ(text.find("needs 512 devices"), text.rfind("needs 512 devices")) << text;
  EXPECT_TRUE(has(text, "b and 3 more: done with other options before")) << text;
}

TEST(Terminal, TheCountsOfRowsThatNothingIsHeldAgainstSayWhatTheyDid) {
  LabRun run = test::planned_sample();
  run.record.device = "rtx-4090";
  const std::string line = summary_line(run, views_of(run));
  EXPECT_TRUE(has(line, "13 rows: 1 not run, 10 fit, 2 out of memory; ")) << line;
  EXPECT_TRUE(has(line, "planned on rtx-4090 and published for a100-80")) << line;
}

TEST(LiveLines, AreWholeWordsAtAnyWidth) {
  for (int width = 20; width <= 120; ++width) {
    const std::string bar = suite_bar("fsdp-sweep", 3, 16, 754, width);
    EXPECT_LE(report::display_width(bar), static_cast<size_t>(width));
    EXPECT_TRUE(bar.ends_with("about 12:34 left") || bar.ends_with("3 of 16 rows") || width < 24)
        << width << ": " << bar;
  }
}

TEST(LiveLines, ALongLineGoesOnBetweenWords) {
  const test::TempFolder folder;
  std::FILE* out = std::fopen((folder / "said").c_str(), "w");  // has no width: 80 columns
  ASSERT_NE(out, nullptr);
  {
    Progress progress(out, true);
    progress.begin_suite("s", 1, 20);
    progress.say(
        "[1/1] one-long-name  oom     14.93 GiB missing: its peak is 105.46 GiB allocated, 107.44 "
        "GiB reserved; available: 92.51 GiB");
  }
  std::fclose(out);
  const std::string said = read_file(folder / "said");
  EXPECT_LE(widest(said), 80U) << said;
  EXPECT_TRUE(has(said, "[1/1] one-long-name  oom     14.93 GiB missing")) << said;
  EXPECT_FALSE(has(said, "10\n")) << said;
  std::istringstream words(said);
  std::vector<std::string> all;
  for (std::string word; words >> word;) all.push_back(word);
  EXPECT_TRUE(std::ranges::find(all, "105.46") != all.end()) << said;
  EXPECT_TRUE(std::ranges::find(all, "107.44") != all.end()) << said;
}

TEST(DefaultFolder, IsOfOneDevice) {
  Suite suite;
  suite.name = "s";
  suite.device = "h100-94";
  EXPECT_EQ(default_folder(suite, Mode::Plan, ""), "out/lab/s-plan");
  EXPECT_EQ(default_folder(suite, Mode::Plan, "h100-94"), "out/lab/s-plan");
  EXPECT_EQ(default_folder(suite, Mode::Plan, "rtx-4090"), "out/lab/s-plan-rtx-4090");
  EXPECT_EQ(default_folder(suite, Mode::Plan, "my/old.card.yaml"), "out/lab/s-plan-old.card");
  EXPECT_EQ(default_folder(suite, Mode::Scaled, ""), "out/lab/s-scaled");
}

TEST(Comparing, SaysFirstWhatIsNotTheSame) {
  LabRun plan = searched({{1, Outcome::Ok}}), scaled = searched({{1, Outcome::OutOfMemory}});
  plan.record.device = "h100-94";
  plan.results[0].limit_bytes = 90 * kGiB;
  scaled.mode = Mode::Scaled;
  scaled.record.device = "a processor";
  scaled.results[0].limit_bytes = 26 * kMiB;
  scaled.results[0].predicted->peak_allocated = 30 * kMiB;
  const std::string text = compare_text(plan, scaled, 120);
  EXPECT_TRUE(has(text, "Mode: plan in A, scaled in B")) << text;
  EXPECT_TRUE(has(text, "Device: h100-94 in A, a processor in B")) << text;
  EXPECT_TRUE(has(text, "Available memory: 90.0 GiB in A, 26.0 MiB in B")) << text;
  EXPECT_TRUE(has(text, "30.0 MiB planned")) << "it never ran to its peak\n" << text;
  EXPECT_FALSE(has(text, " %")) << "of other models\n" << text;
  EXPECT_EQ(rows_in_both(plan, searched({{2, Outcome::Ok}})), 0U);
}

TEST(Csv, WhatBeginsLikeAFormulaIsNone) {
  LabRun run = searched({{1, Outcome::Ok}});
  run.rows[0].title = "=1+1";
  const std::string csv = report_csv(run);
  EXPECT_TRUE(has(csv, ",'=1+1,")) << csv;
  run.rows[0].title = "-5";
  EXPECT_TRUE(has(report_csv(run), ",-5,")) << "a number";
}

}  // namespace
}  // namespace snug::lab
