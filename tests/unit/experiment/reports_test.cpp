// SPDX-License-Identifier: Apache-2.0
#include "experiment/reports.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "base/bytes.h"
#include "base/files.h"
#include "experiment/figures.h"
#include "experiment/report_section.h"
#include "experiment/row_view.h"
#include "report/text_width.h"
#include "support/lab_samples.h"
#include "support/temp_folder.h"

namespace snug::experiment {
namespace {

using nlohmann::json;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    out.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return out;
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

// What Python's reader makes of the CSV: "rows columns third-title".
std::string read_by_python(const std::string& csv) {
  const test::TempFolder folder;
  write_file_atomically(folder / "report.csv", csv);
  const std::string command =
      "python3 -c 'import csv, sys; rows = list(csv.reader(open(sys.argv[1], newline=\"\"))); "
      "print(len(rows), {len(row) for row in rows}, rows[1][0])' '" +
      (folder / "report.csv").string() + "' >'" + (folder / "said").string() + "' 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0);
  return read_file(folder / "said");
}

TEST(Summary, CountsVerdictsFiguresAndSearches) {
  const LabRun run = test::planned_sample();
  EXPECT_EQ(
      summary_line(run, views_of(run)),
      "13 rows: 10 as published, 1 beyond it, 1 differs, 1 not run; 5 of 6 figures within 10 %, "
      "and 0 of 4 that only snug's own can be held against; 1 search");
  const LabRun measured = test::measured_sample();
  EXPECT_EQ(summary_line(measured, views_of(measured)),
            "5 rows: 2 as published, 1 crashed, 1 timed out, 1 not run");
}

TEST(Sweeps, TheOptimumIsTheMostTokensASecondOfThoseThatFit) {
  LabRun run = test::planned_sample();
  const std::vector<RowView> views = views_of(run);
  const auto members = members_of(run.suite.groups[0], views);
  ASSERT_EQ(members.size(), 5U);
  EXPECT_EQ(best_of_sweep(members)->row->id, "wide-b8") << "16 would be faster and does not fit";
  EXPECT_EQ(largest_that_fits(members_of(run.suite.groups[1], views))->row->id, "largest-3");
}

TEST(Figures, AreReadWithThreeDigits) {
  EXPECT_EQ(memory_text(0), "0 bytes");
  EXPECT_EQ(memory_text(1023), "1023 bytes");
  EXPECT_EQ(memory_text(kGiB), "1.00 GiB");
  EXPECT_EQ(memory_text(kGiB * 995 / 10), "99.5 GiB");
  EXPECT_EQ(memory_text(999999 * kMiB), "976.6 GiB");
  EXPECT_EQ(memory_pair(16 * kGiB, 8 * kGiB), "16.0 → 8.00 GiB");
  EXPECT_EQ(memory_pair(16 * kGiB, 8 * kMiB), "16.0 GiB → 8.00 MiB");
  EXPECT_EQ(seconds_text(0.0823), "82.3 ms");
  EXPECT_EQ(seconds_text(0.42), "0.42 s");
  EXPECT_EQ(seconds_text(7300), "2.0 h");
  EXPECT_EQ(percent_text(-0.2311), "−23.1 %");
  EXPECT_EQ(percent_text(0.00001), "0.0 %");
}

TEST(ReportText, FitsItsWidthAndKeepsEveryRow) {
  const LabRun run = test::planned_sample();
  for (const int width : {90, 120, 200}) {
    const std::string text = report_text(run, width);
    for (const Row& row : run.rows) {
      if (row.group == "largest") continue;
      EXPECT_NE(text.find(row.id), std::string::npos) << width << " " << row.id;
    }
    for (const std::string& line : lines_of(text)) {
      if (line.find("ls0") == 0 || line.find("wide-") == 0) {
        EXPECT_LE(report::display_width(line), static_cast<size_t>(width)) << line;
      }
    }
  }
  EXPECT_NE(
      report_text(run, 200).find("train.micro_batch_size 3 (67.3 GiB); tried 1 ✓, 2 ✓, 4 ✗, 3 ✓"),
      std::string::npos)
      << report_text(run, 200);
}

TEST(ReportMarkdown, EveryLineOfTheTableHasAsManyCells) {
  for (const LabRun& run :
       {test::planned_sample(), test::measured_sample(), test::hostile_sample()}) {
    std::set<size_t> bars;
    for (const std::string& line : lines_of(report_markdown(run)))
      if (line.starts_with("|")) bars.insert(count(line, "|") - count(line, "\\|"));
    EXPECT_EQ(bars.size(), 1U);
  }
  EXPECT_EQ(report_markdown(test::hostile_sample()).find("<script>"), std::string::npos);
}

TEST(ReportCsv, IsReadByAnotherReader) {
  EXPECT_EQ(read_by_python(report_csv(test::planned_sample())), "18 {30} ls01-baseline\n");
  const LabRun hostile = test::hostile_sample();
  EXPECT_EQ(read_by_python(report_csv(hostile)), "18 {30} " + hostile.rows[0].id + "\n");
}

TEST(ReportJson, HasTheFiguresOfEveryRow) {
  const LabRun run = test::planned_sample();
  const json report = json::parse(report_json(run));
  ASSERT_EQ(report.at("rows").size(), run.rows.size());
  const json& row = report.at("rows").at(1);
  const RowResult& result = *run.find("ls02-small-batch");
  EXPECT_EQ(row.at("id"), "ls02-small-batch");
  EXPECT_EQ(row.at("predicted").at("peak_allocated"), result.predicted->peak_allocated);
  EXPECT_EQ(row.at("like").at("peak_reserved"), result.like->peak_reserved);
  EXPECT_TRUE(row.at("measured").is_null());
  EXPECT_EQ(row.at("verdict"), "as expected");
  EXPECT_NEAR(row.at("published").at(0).at("deviation").get<double>(), 1 / 1.03 - 1, 1e-9);
  EXPECT_EQ(json::parse(report_json(test::hostile_sample())).at("rows").size(), run.rows.size());
}

TEST(ReportHtml, EveryLinkLeadsSomewhereOnThePage) {
  for (const LabRun& run :
       {test::planned_sample(), test::measured_sample(), test::hostile_sample()}) {
    const std::string html = report_html(run);
    std::set<std::string> ids;
    const std::regex id(" id=\"([^\"]*)\""), link("href=\"#([^\"]*)\"");
    for (auto it = std::sregex_iterator(html.begin(), html.end(), id); it != std::sregex_iterator();
         ++it)
      EXPECT_TRUE(ids.insert((*it)[1]).second) << "twice: " << (*it)[1];
    for (auto it = std::sregex_iterator(html.begin(), html.end(), link);
         it != std::sregex_iterator(); ++it)
      EXPECT_TRUE(ids.contains((*it)[1])) << (*it)[1];
  }
}

TEST(ReportHtml, NothingIsFetchedAndNoTextBecomesMarkup) {
  const std::string html = report_html(test::hostile_sample());
  EXPECT_EQ(count(html, "</script>"), 2U) << "the figures and the page's own";
  EXPECT_EQ(count(html, "<script"), 2U);
  EXPECT_EQ(html.find("<img"), std::string::npos);
  EXPECT_NE(html.find("Content-Security-Policy"), std::string::npos);
  EXPECT_EQ(count(html, "http"),
            count(html, "http://www.w3.org/2000/svg") + count(html, "http-equiv"));
}

TEST(ReportHtml, AnEmptyRunIsAPage) {
  const std::string html = report_html(LabRun{});
  EXPECT_NE(html.find("0 rows"), std::string::npos);
  EXPECT_TRUE(html.ends_with("</html>\n"));
}

TEST(LogTail, IsWhatStoodOnTheTerminalLast) {
  const test::TempFolder folder;
  LabRun run = test::measured_sample();
  run.folder = folder.path();
  test::write_logs(run);
  const std::vector<RowView> views = views_of(run);
  const std::string tail = log_tail(run, views[2]);
  EXPECT_TRUE(tail.ends_with("step 3000\nSegmentation fault\n")) << tail;
  EXPECT_EQ(tail.find('\x1b'), std::string::npos);
  EXPECT_LT(tail.size(), 300U) << "redrawn lines are gone";
  EXPECT_NE(report_html(run).find("Segmentation fault"), std::string::npos);
  run.folder = folder / "nowhere";
  EXPECT_EQ(log_tail(run, views[2]), "");
}

TEST(WriteReports, WritesAllFour) {
  const test::TempFolder folder;
  LabRun run = test::measured_sample();
  run.folder = folder.path();
  write_reports(run);
  EXPECT_EQ(read_file(folder / "report.html"), report_html(run));
  EXPECT_EQ(read_file(folder / "report.md"), report_markdown(run));
  EXPECT_EQ(read_file(folder / "report.csv"), report_csv(run));
  EXPECT_EQ(read_file(folder / "report.json"), report_json(run));
}

TEST(Compare, SaysWhatChangedAndWhatIsInOneAlone) {
  LabRun first = test::planned_sample(), second = test::planned_sample();
  second.rows.erase(second.rows.begin());
  second.results.erase(second.results.begin());
  Figures& figures = *second.results[0].predicted;
  figures.peak_allocated *= 2;
  figures.step_seconds /= 2;
  const json compared = json::parse(compare_json(first, second));
  const json& row = compared.at("rows").at(1);
  EXPECT_EQ(row.at("id"), "ls02-small-batch");
  EXPECT_DOUBLE_EQ(row.at("memory_change").get<double>(), 1);
  EXPECT_DOUBLE_EQ(row.at("time_change").get<double>(), -0.5);
  EXPECT_TRUE(compared.at("rows").at(0).at("second").is_null());
  const std::string text = compare_text(first, second, 120);
  EXPECT_NE(text.find("+100 %"), std::string::npos) << text;
  EXPECT_NE(text.find("−50.0 %"), std::string::npos) << text;
  EXPECT_NE(text.find("out of memory → not in it"), std::string::npos) << text;
  EXPECT_NE(text.find("17 rows, 16 in both"), std::string::npos) << text;
}

}  // namespace
}  // namespace snug::experiment
