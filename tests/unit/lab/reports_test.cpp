// SPDX-License-Identifier: Apache-2.0
#include "lab/report/reports.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "base/bytes.h"
#include "base/files.h"
#include "lab/page/page.h"
#include "lab/report/figures.h"
#include "lab/report/row_view.h"
#include "report/charts/charts.h"
#include "report/text_width.h"
#include "support/lab_samples.h"
#include "support/temp_folder.h"

namespace snug::lab {
namespace reports_test {

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
      "13 rows: 10 same as published, 1 fits where the original did not, 1 differs, 1 not run; "
      "memory: 5 of 6 within 10 %; "
      "time: 0 of 4 within 10 %; 1 search");
  const LabRun measured = test::measured_sample();
  EXPECT_EQ(summary_line(measured, views_of(measured)),
            "5 rows: 2 same as published, 1 crashed, 1 timed out, 1 not run");
}

TEST(Verdicts, OutcomeAndFiguresAreMarkedApart) {
  const LabRun run = test::planned_sample();
  for (const RowView& view : views_of(run)) {
    if (view.row->id != "wide-b4") continue;
    EXPECT_EQ(view.verdict_words, "same outcome, memory");
    ASSERT_EQ(view.marks.size(), 2U);
    EXPECT_EQ(view.marks[0].words, "memory within 10 %");
    EXPECT_TRUE(view.marks[0].is_met);
    EXPECT_EQ(view.marks[1].words, "time −23.1 %") << "1 / 1.3 - 1";
    EXPECT_FALSE(view.marks[1].is_met);
  }
  const std::string html = report_html(run);
  EXPECT_GE(count(html, "<span class=\"chip warn\">time −23.1 %</span>"), 2U);
  EXPECT_EQ(count(html, "data-sheet rates"), 1U);
  for (const char* word : {"same outcome", "fits where the original did not", "differs"})
    EXPECT_EQ(count(html, std::string("<dt>") + word + "</dt>"), 1U) << word;
}

// What no verdict is about is said apart, or a reader takes "as published" for it too.
TEST(Verdicts, TimesThatAreOffAreNamedThoughNotJudged) {
  const LabRun run = test::planned_sample();
  for (const std::string& text : {report_html(run), report_markdown(run)}) {
    const size_t at = text.find("Not judged: step times");
    ASSERT_NE(at, text.npos);
    EXPECT_NE(text.substr(at, text.find('\n', at) - at).find("wide-b4 −23.1 %"), text.npos);
  }
}

// Beside figures, too: a row with a published time may have been published as out of memory.
TEST(Verdicts, OutOfMemoryIsShownWhereItWasPublished) {
  LabRun run = test::planned_sample();
  test::row_of(run, "wide-b4").expected = Expected::OutOfMemory;
  for (const RowView& view : views_of(run)) {
    const std::string published = cell_text(view, Cell::Published);
    EXPECT_EQ(published.starts_with("out of memory"), view.row->expected == Expected::OutOfMemory)
        << view.row->id << ": " << published;
  }
}

// Meeting a time that the plan was fitted on proves little; a measured one was never fitted.
TEST(Verdicts, FittedTimesAreSaidToBe) {
  LabRun run = test::planned_sample();
  test::row_of(run, "wide-b4").time_is_fitted = true;
  EXPECT_NE(summary_line(run, views_of(run)).find("time: 0 of 4 within 10 % (1 of 4 fitted)"),
            std::string::npos);
  EXPECT_GE(count(report_html(run), "time −23.1 %, fitted</span>"), 1U);
  int fitted = 0;
  const json report = json::parse(report_json(run));
  for (const json& row : report["rows"])
    for (const json& figure : row["published"])
      if (figure.at("fitted").get<bool>()) {
        EXPECT_EQ(row["id"], "wide-b4");
        EXPECT_EQ(figure["unit"], "seconds");
        ++fitted;
      }
  EXPECT_EQ(fitted, 1);
  run.mode = Mode::Run;
  EXPECT_EQ(summary_line(run, views_of(run)).find("fitted"), std::string::npos);
}

TEST(Verdicts, WhatOnlyASuiteExpectsIsNotCalledPublished) {
  LabRun run = test::measured_sample();
  run.record.source.clear();
  run.rows[0].hardware = "this laptop";
  run.results[0].outcome = Outcome::OutOfMemory;
  run.results[0].measured.reset();
  for (const std::string& page : {report_html(run), report_markdown(run), report_text(run, 200)}) {
    EXPECT_EQ(page.find("as published"), std::string::npos);
    EXPECT_EQ(page.find("Published:"), std::string::npos);
    EXPECT_EQ(page.find("Published for"), std::string::npos);
    EXPECT_NE(page.find("Expected: it fits; here it ran out of memory"), std::string::npos);
    EXPECT_NE(page.find("as expected"), std::string::npos);
  }
  EXPECT_NE(report_html(run).find(">Expected</button>"), std::string::npos);
  run.record.source = "a tutorial";
  EXPECT_NE(report_html(run).find(">Published</button>"), std::string::npos);
  run.mode = Mode::Scaled;
  EXPECT_EQ(report_html(run).find(">Published</button>"), std::string::npos);
}

// Reserved decides whether a row fits; what was compared stands beside the published figure.
TEST(ReportHtml, TheFigureThatDecidesComesFirst) {
  const LabRun run = test::planned_sample();
  const std::string html = report_html(run);
  const Figures& plan = *run.find("ls01-baseline")->predicted;
  const Figures& largest = *run.find("largest-4")->predicted;
  EXPECT_GE(count(html, "<span>" + memory_text(plan.peak_reserved) +
                            "</span><small class=\"mu\">allocated " +
                            memory_text(plan.peak_allocated) + "</small>"),
            1U);
  EXPECT_NE(html.find(">Planned, reserved</button>"), std::string::npos);
  EXPECT_NE(html.find("<td class=\"n\">" + memory_text(largest.peak_reserved) + " ✗</td>"),
            std::string::npos);
  const FigureCheck check = views_of(run)[1].verdict.figures.at(0);
  EXPECT_NE(html.find("<span>" + percent_text(check.deviation()) +
                      "</span><small class=\"mu\">LitGPT: " + compared_text(check) + "</small>"),
            std::string::npos);
}

// On a machine with much memory bars of a small run would be hairlines.
TEST(ReportHtml, ALimitFarAboveIsSaidAndNotDrawn) {
  const auto page = [](int64_t limit) {
    LabRun run;
    run.mode = Mode::Run;
    for (const int64_t mib : {20, 40}) {
      RowResult& result = test::add_row(run, fmt::format("row-{}", mib));
      result.outcome = Outcome::Ok;
      result.limit_bytes = limit;
      result.measured = Figures{.peak_allocated = mib * kMiB,
                                .by_category = {{"parameters", mib * kMiB}},
                                .step_seconds = 0.1,
                                .tokens_per_second = 1000};
    }
    return report_html(run);
  };
  const std::string far = page(24 * kGiB);
  EXPECT_NE(far.find("<i style=\"width:100.00%"), std::string::npos);
  EXPECT_NE(far.find("peak memory, MiB"), std::string::npos);
  EXPECT_EQ(count(far, "<li>available: 24.0 GiB</li>"), 2U) << "beside both drawings";
  EXPECT_EQ(far.find("class=\"limit\""), std::string::npos);
  const std::string near = page(80 * kMiB);
  EXPECT_NE(near.find("<i style=\"width:50.00%"), std::string::npos);
  EXPECT_NE(near.find("class=\"limit\""), std::string::npos);
}

TEST(Scatter, EveryPointHasItsNameOrANumberOfTheKey) {
  report::ScatterChart chart{.name = "crowd", .x_label = "x", .y_label = "y"};
  for (int i = 0; i < 30; ++i)
    chart.points.push_back(
        {fmt::format("a-long-name-{}", i), "", "", 5.0 + 0.01 * i, 10 + 0.01 * (i % 3), "c0"});
  std::vector<size_t> numbered;
  const std::string svg = report::scatter_chart(chart, &numbered);
  EXPECT_FALSE(numbered.empty());
  for (size_t i = 0; i < chart.points.size(); ++i) {
    const bool has_number = std::find(numbered.begin(), numbered.end(), i) != numbered.end();
    EXPECT_EQ(count(svg, ">" + chart.points[i].label + "</text>"), has_number ? 0U : 1U) << i;
    if (has_number) {
      EXPECT_NE(svg.find(fmt::format(">{}</text>", i + 1)), std::string::npos) << i;
    }
  }
  chart.all_numbered = true;
  report::scatter_chart(chart, &numbered);
  EXPECT_EQ(numbered.size(), chart.points.size());
}

TEST(Sweeps, TheOptimumIsTheMostTokensASecondOfThoseThatFit) {
  LabRun run = test::planned_sample();
  const std::vector<RowView> views = views_of(run);
  const auto members = members_of(run.suite.groups[0], views);
  ASSERT_EQ(members.size(), 5U);
  EXPECT_EQ(best_of_sweep(members)->row->id, "wide-b8") << "16 would be faster and does not fit";
  EXPECT_NE(report_text(run, 120).find("most tokens per second at"), std::string::npos);
  EXPECT_EQ(largest_that_fits(members_of(run.suite.groups[1], views))->row->id, "largest-3");
}

TEST(Sweeps, OneRowIsNoOptimum) {
  LabRun run = test::planned_sample();
  const auto is_other = [&](const Row& row) {
    return row.group == run.suite.groups[0].id && row.id != "wide-b8";
  };
  std::erase_if(run.rows, is_other);
  const std::vector<RowView> views = views_of(run);
  const auto members = members_of(run.suite.groups[0], views);
  ASSERT_EQ(members.size(), 1U);
  EXPECT_EQ(best_of_sweep(members), nullptr);
  for (const std::string& text : {report_text(run, 120), report_markdown(run), report_html(run)}) {
    EXPECT_EQ(text.find("ost tokens per second at"), std::string::npos) << text;
    EXPECT_EQ(text.find("no row completed"), std::string::npos) << text;
  }
}

// The counted program is faster up to 4; at 8 its allocator has to retry, and 16 does not fit.
TEST(Sweeps, TheCountedProgramsOptimumAndItsCliffAreTold) {
  LabRun run = test::planned_sample();
  EXPECT_EQ(report_markdown(run).find("counted for"), std::string::npos);
  const std::vector<RowView> views = views_of(run);
  for (const RowView* view : members_of(run.suite.groups[0], views)) {
    const auto result = std::ranges::find(run.results, view->row->id, &RowResult::id);
    ASSERT_NE(result, run.results.end());
    result->like = *result->predicted;
    result->like_program = "lightning";
    result->like->fits = view->row->value < 16;
    if (view->row->value < 8) continue;
    result->like->step_seconds *= view->row->value < 16 ? 10 : 0.01;
    result->like->num_alloc_retries = 2;
  }
  const std::string told =
      "counted for Lightning: at 4; its allocator retries 2 times a step at 8, 2 at 16";
  EXPECT_NE(report_markdown(run).find(told), std::string::npos) << report_markdown(run);
  const std::string page = report_html(run);
  EXPECT_NE(page.find("Counted for Lightning: most tokens per second at"), std::string::npos);
  EXPECT_EQ(count(page, ">Lightning, counted</text>") % 4, 0U);  // memory and time, at two widths
}

TEST(Figures, AreReadWithThreeDigits) {
  EXPECT_EQ(use_text(0.7194, 0.033), "71.9 ± 3.3 %");
  EXPECT_EQ(use_text(0.7194, 0), "71.9 %");
  EXPECT_EQ(use_text(0, 0), "");
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
  EXPECT_NE(report_text(run, 200).find("tried 1 ✓, 2 ✓, 3 ✓, 4 ✗"), std::string::npos)
      << report_text(run, 200);
}

TEST(ReportMarkdown, EveryLineOfTheTableHasAsManyCells) {
  for (const auto& write : {report_markdown, worksheet}) {
    for (const LabRun& run :
         {test::planned_sample(), test::measured_sample(), test::hostile_sample()}) {
      std::set<size_t> bars;
      for (const std::string& line : lines_of(write(run)))
        if (line.starts_with("|")) bars.insert(count(line, "|") - count(line, "\\|"));
      EXPECT_EQ(bars.size(), 1U);
    }
    EXPECT_EQ(write(test::hostile_sample()).find("<script>"), std::string::npos);
  }
}

TEST(Worksheet, HasWhatRanOrWasPlanned) {
  for (const LabRun& run : {test::planned_sample(), test::measured_sample()}) {
    const std::string sheet = worksheet(run);
    for (const RowView& view : without_tries(views_of(run))) {
      const size_t at = sheet.find("| " + markdown(view.row->id) + " |");
      ASSERT_NE(at, sheet.npos) << view.row->id;
      const std::string line = sheet.substr(at, sheet.find('\n', at) - at);
      const bool has_run = view.outcome.kind != OutcomeView::Kind::None;
      EXPECT_EQ(line.find(view.outcome.words) != line.npos, has_run) << line;
      if (view.own == nullptr || view.result->outcome != Outcome::Ok) continue;
      EXPECT_NE(line.find(memory_text(needed_bytes(*view.own))), line.npos) << line;
    }
    EXPECT_NE(sheet.find("\n1. "), sheet.npos) << sheet;
    EXPECT_NE(sheet.find("\n     > \n"), sheet.npos) << "room for an answer";
  }
}

TEST(Worksheet, AsksEachQuestionOnce) {
  std::map<std::string, int> asked;
  for (const std::string& line : lines_of(worksheet(test::planned_sample())))
    if (line.ends_with("?")) ++asked[line.substr(line.find(". ") + 1)];
  EXPECT_GE(asked.size(), 2U);
  for (const auto& [question, times] : asked) EXPECT_EQ(times, 1) << question;
}

TEST(ReportCsv, IsReadByAnotherReader) {
  EXPECT_EQ(read_by_python(report_csv(test::planned_sample())), "18 {35} ls01-baseline\n");
  const LabRun hostile = test::hostile_sample();
  EXPECT_EQ(read_by_python(report_csv(hostile)), "18 {35} " + hostile.rows[0].id + "\n");
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

TEST(Explained, StandsBesideTheVerdictInEveryForm) {
  LabRun run = test::planned_sample();
  run.suite.device = run.record.device;
  const auto explain_with = [&](const std::string& why) {
    for (Row& row : run.rows) row.explained = {why};
  };
  const auto differing = [&] {
    for (const RowView& view : views_of(run))
      if (view.verdict.verdict == Verdict::Differs) return view;
    return RowView{};
  };
  const std::string id = differing().row->id;
  EXPECT_EQ(why_lines(differing()), std::vector<std::string>{"The suite gives no explanation."});
  EXPECT_NE(report_text(run, 120).find(id + ": Why: The suite gives no explanation."),
            std::string::npos);
  explain_with("Half of it is <kept>.");
  EXPECT_NE(summary_line(run, views_of(run)).find("1 differs (explained)"), std::string::npos);
  EXPECT_NE(report_text(run, 120).find(id + ": Why: Half of it is <kept>."), std::string::npos);
  EXPECT_EQ(count(report_markdown(run), "Why: Half of it is \\<kept\\>."), 1U)
      << "of the one that differs alone";
  EXPECT_EQ(count(report_html(run), "Half of it is &#60;kept&#62;."), 2U)
      << "in the list and the row";
  const json report = json::parse(report_json(run));
  for (const json& row : report.at("rows"))
    EXPECT_EQ(row.at("why").size(), row.at("id") == id ? 1U : 0U) << row.at("id");
  // It is of the suite's own device.
  run.record.device = "rtx-4090";
  EXPECT_TRUE(differing().why.empty());
}

TEST(Close, AFitThatLeavesLittleIsSeen) {
  LabRun run;
  const auto add = [&](const std::string& id, int64_t mib, int64_t like_mib) {
    RowResult& result = test::add_row(run, id);
    result.outcome = mib <= 1000 ? Outcome::Ok : Outcome::OutOfMemory;
    result.limit_bytes = 1000 * kMiB;
    result.predicted = Figures{.fits = mib <= 1000, .peak_allocated = mib * kMiB};
    result.like = Figures{.fits = like_mib <= 1000, .peak_allocated = like_mib * kMiB};
    result.like_program = "litgpt";
  };
  add("wide", 949, 951);
  add("close", 951, 949);
  add("whole", 1000, 1001);
  add("too-large", 1001, 999);
  const std::vector<RowView> views = views_of(run);
  EXPECT_EQ(views[0].close, "");
  EXPECT_EQ(views[0].counted_close, "close: 4.9 % left");
  EXPECT_EQ(views[1].close, "close: 4.9 % left");
  EXPECT_EQ(views[1].counted_close, "");
  EXPECT_EQ(views[2].close, "close: 0.0 % left");
  EXPECT_EQ(views[2].counted_close, "");
  EXPECT_EQ(views[3].close, "");
  EXPECT_EQ(views[3].counted_close, "close: 0.1 % left");
  EXPECT_EQ(count(report_html(run), "<span class=\"chip warn\">close: 4.9 % left</span>"), 2U)
      << "in the table and the row";
  EXPECT_NE(report_markdown(run).find("| ✓ fits, close: 4.9 % left |"), std::string::npos);
  EXPECT_NE(report_text(run, 200).find("close: 0.0 % left"), std::string::npos);
  const json rows = json::parse(report_json(run)).at("rows");
  EXPECT_EQ(rows.at(1).at("close"), true);
  EXPECT_EQ(rows.at(1).at("like_close"), false);
  EXPECT_EQ(rows.at(3).at("like_close"), true);
}

// The same sweep planned at full size and run scaled: its published points are of full size.
TEST(ReportHtml, AScaledSweepIsNotDrawnAmongFullSizePoints) {
  LabRun run = test::planned_sample();
  const std::string full = report_html(run);
  EXPECT_NE(full.find(">published</text>"), std::string::npos);
  EXPECT_NE(full.find(">published</th>"), std::string::npos);
  EXPECT_EQ(full.find("not drawn beside"), std::string::npos);
  run.mode = Mode::Scaled;
  const std::string scaled = report_html(run);
  EXPECT_EQ(scaled.find(">published</text>"), std::string::npos);
  EXPECT_EQ(scaled.find(">published</th>"), std::string::npos);
  EXPECT_EQ(count(scaled, "so they are not drawn beside these small models"), 1U);
}

TEST(ReportHtml, NothingIsFetchedAndNoTextBecomesMarkup) {
  const std::string html = report_html(test::hostile_sample());
  EXPECT_EQ(count(html, "</script>"), 2U) << "the figures and the page's own";
  EXPECT_EQ(count(html, "<script"), 2U);
  EXPECT_EQ(html.find("<img"), std::string::npos);
  EXPECT_NE(html.find("Content-Security-Policy"), std::string::npos);
  // Names of languages, which no browser asks for.
  const auto names =
      count(html, "http://www.w3.org/2000/svg") + count(html, "http://www.w3.org/1999/xhtml");
  EXPECT_EQ(count(html, "http"), names + count(html, "http-equiv"));
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
  figures.peak_reserved *= 2;
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

// By hand: 1,000 tokens/s on two devices at 3.60 an hour are 1000 s and 2 USD a million tokens.
TEST(Costs, AreColumnsWhereTheSuiteHasAPrice) {
  LabRun run = test::planned_sample();
  const auto titles = [&] {
    std::set<std::string> found;
    for (const TableColumn& column : table_columns(run, views_of(run))) found.insert(column.title);
    return found;
  };
  EXPECT_FALSE(titles().contains("1M tokens")) << "no price is made up";
  const std::vector<RowView> before = views_of(run);
  const auto fits = std::ranges::find_if(
      before, [](const RowView& v) { return v.outcome.kind == OutcomeView::Kind::Good; });
  const auto at = static_cast<size_t>(fits - before.begin());
  run.rows[at].price_per_hour = "3.60 USD";
  RowResult& result = run.results[at];
  ASSERT_EQ(result.id, run.rows[at].id);
  result.measured.reset();
  result.world_size = 2;
  result.predicted->tokens_per_second = 1000;
  const RowView view = views_of(run)[at];
  EXPECT_EQ(cell_text(view, Cell::MillionTokens), "16.7 min, 2.00 USD");
  EXPECT_EQ(cell_text(view, Cell::Epoch), "–") << "how long one is, is not known";
  EXPECT_TRUE(titles().contains("1M tokens"));
  EXPECT_FALSE(titles().contains("An epoch"));
  result.predicted->tokens_per_epoch = 50000;
  EXPECT_EQ(cell_text(views_of(run)[at], Cell::Epoch), "50.0 s, 0.10 USD");
  const json cost = json::parse(report_json(run))["rows"][at]["cost"];
  EXPECT_EQ(cost["million_tokens_seconds"], 1000);
  EXPECT_DOUBLE_EQ(cost["million_tokens_price"], 2);
  EXPECT_DOUBLE_EQ(cost["epoch_price"], 0.1);
  EXPECT_EQ(cost["currency"], "USD");
  EXPECT_NE(report_csv(run).find(",1000,2,50,0.1,USD\n"), std::string::npos) << report_csv(run);
  EXPECT_EQ(why_no_cost(run, views_of(run)), "");
  run.mode = Mode::Scaled;
  EXPECT_EQ(cell_text(views_of(run)[at], Cell::MillionTokens), "–") << "another device's time";
  run.mode = Mode::Run;
  run.results[at].measured = run.results[at].predicted;
  run.rows[at].device = "a100-80";
  run.results[at].device = "Some Processor";
  const std::string why =
      "price_per_hour is that of a100-80, but " + result.id + " ran on Some Processor";
  for (const std::string& text : {report_text(run, 0), report_markdown(run), report_html(run)})
    EXPECT_NE(text.find("ran on Some Processor"), std::string::npos) << text;
  EXPECT_NE(report_text(run, 0).find(why), std::string::npos) << report_text(run, 0);
  run.rows[at].device = "cpu";
  EXPECT_EQ(why_no_cost(run, views_of(run)), "");
}

}  // namespace reports_test
}  // namespace snug::lab
