// Well-formedness is judged by Python's expat, not by a parser of ours.
// SPDX-License-Identifier: Apache-2.0
#include "report/run_page.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <regex>

#include "base/bytes.h"
#include "base/files.h"
#include "report/charts/charts.h"
#include "report/html_page.h"
#include "report/tables.h"
#include "support/temp_folder.h"

namespace snug::report {
namespace {

// Empty when `xml` is well-formed, else what expat says.
std::string xml_fault(const std::string& xml) {
  const test::TempFolder folder;
  std::ofstream(folder / "page.xml", std::ios::binary) << xml;
  const std::string command =
      "python3 -c 'import sys, xml.parsers.expat as x; "
      "x.ParserCreate().ParseFile(open(sys.argv[1], \"rb\"))' '" +
      (folder / "page.xml").string() + "' 2>'" + (folder / "fault").string() + "'";
  if (std::system(command.c_str()) == 0) return "";
  return read_file(folder / "fault");
}

RunRecord example(int64_t steps) {
  RunRecord record;
  record.model = {"HuggingFaceTB/SmolLM2-135M", 134515008, 134515008};
  record.device = {"cpu", 3 * kGiB};
  for (int64_t s = 1; s <= steps; ++s)
    record.steps.push_back({s, 3 + std::exp(-s / 50.0), 0.5 + 0.1 * (s % 3), 512, 600, 1e-4, 1});
  for (int64_t s = 0; s <= steps; s += 25) record.validation.push_back({s, 3.2 - s / 1000.0, 64});
  for (int64_t s : {0, 1, 50, 100, 150, 200, 250})
    for (const char* name : {"before_fwd", "after_fwd", "after_bwd", "after_opt_step"})
      record.memory.phases.push_back({s, name, kGiB / 4, kGiB / 4, kGiB / 2, 0, kGiB / 3, kMiB, 0,
                                      kMiB, kGiB, 2 * kGiB, 2 * kGiB});
  return record;
}

TEST(ReportPage, IsWellFormedAtAnySize) {
  for (const int64_t steps : {0, 1, 39, 40, 5000})
    EXPECT_EQ(xml_fault(report_html(example(steps))), "") << steps;
  EXPECT_EQ(xml_fault(report_html({})), "");
}

TEST(ReportPage, EachChartStandsAlone) {
  const RunRecord record = example(60);
  for (const auto& svg : {loss_svg(record), throughput_svg(record), memory_svg(record)})
    EXPECT_EQ(xml_fault(svg), "");
  EXPECT_EQ(loss_svg({}) + throughput_svg({}) + memory_svg({}), "");
}

// A phone of 390 pixels leaves 350, so nothing is cut or has to be scrolled.
TEST(ReportPage, ChartsForAPhoneKeepToItsWidth) {
  RunRecord record = example(60);
  record.device.budget_bytes = 2 * kGiB;
  const std::regex rectangle(R"re(<rect class="[^"]*" x="([\d.]+)" y="[\d.]+" width="([\d.]+)")re");
  const std::regex text(
      R"re(<text[^>]* x="([\d.]+)" y="[\d.]+"(?: text-anchor="(\w+)")?>([^<]*)<)re");
  size_t rectangles = 0, texts = 0;
  for (const auto chart : {loss_svg, throughput_svg, memory_svg}) {
    const std::string svg = chart(record, kPhoneWidth);
    EXPECT_NE(svg.find(" width=\"320\""), std::string::npos);
    EXPECT_NE(report_html(record).find(svg), std::string::npos);
    const auto end = std::sregex_iterator();
    for (auto found = std::sregex_iterator(svg.begin(), svg.end(), rectangle); found != end;
         ++found) {
      EXPECT_LE(std::stod((*found)[1]) + std::stod((*found)[2]), 320) << (*found)[0];
      ++rectangles;
    }
    for (auto found = std::sregex_iterator(svg.begin(), svg.end(), text); found != end; ++found) {
      constexpr double kLetter = 6;  // of the page's 12 px, on average
      const double from = std::stod((*found)[1]),
                   wide = kLetter * static_cast<double>((*found)[3].length());
      const std::string anchor = (*found)[2];
      const double left = anchor == "end"      ? from - wide
                          : anchor == "middle" ? from - wide / 2
                                               : from;
      EXPECT_GE(left, 0) << (*found)[0];
      EXPECT_LE(left + wide, 320) << (*found)[0];
      ++texts;
    }
  }
  EXPECT_GE(rectangles, 20U);
  EXPECT_GE(texts, 20U);
}

TEST(ReportPage, TheCheckItselfCanFail) { EXPECT_NE(xml_fault("<a>\x01&</b>"), ""); }

TEST(ReportPage, HostileStringsStayText) {
  const std::string evil =
      "</title><script>alert(1)</script>\"'&\x01\x1b\xff\xef\xbf\xbf\n]]>\u009b<!--";
  RunRecord record = example(10);
  record.model.id = record.device.name = record.command = record.reason = record.outcome = evil;
  record.recipe = {{evil, evil}};
  record.samples = {{evil, evil, evil, evil}};
  for (PhaseRecord& phase : record.memory.phases) phase.phase = evil;
  const std::string page = report_html(record);
  EXPECT_EQ(xml_fault(page), "");
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("<!--"), std::string::npos);
}

TEST(ReportPage, ShowsSampleAnswers) {
  RunRecord record = example(3);
  EXPECT_EQ(report_html(record).find("Held-out samples"), std::string::npos);
  record.samples = {{"what is 1 < 2?", "true", "", "yes"}, {"q", "e", "b", "a"}};
  const std::string page = report_html(record);
  EXPECT_NE(page.find("question  what is 1 &#60; 2?\nexpected  true\nafter     yes\n</pre>"),
            std::string::npos);
  EXPECT_NE(page.find("before    b\n"), std::string::npos);
}

TEST(ReportPage, FetchesNothing) {
  std::string page = report_html(example(100));
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  // An icon of no bytes keeps browsers from asking a server for one.
  const std::string icon = "<link rel=\"icon\" href=\"data:,\"/>";
  ASSERT_NE(page.find(icon), std::string::npos);
  page.erase(page.find(icon), icon.size());
  for (const char* needle : {"src=", "@import", "url(", "<link", "<script"})
    EXPECT_EQ(page.find(needle), std::string::npos) << needle;
  EXPECT_NE(page.find("prefers-color-scheme:dark"), std::string::npos);
}

TEST(ReportPage, AbsurdFiguresDrawNothingAbsurd) {
  RunRecord record = example(60);
  record.steps[3].loss = NAN;
  record.steps[4].loss = INFINITY;
  record.steps[5].loss = 1e300;
  record.steps[6].seconds = 0;
  record.validation[0].loss = -INFINITY;
  record.speed.tokens_per_second = 1e300;
  const std::string page = report_html(record);
  EXPECT_EQ(xml_fault(page), "");
  const std::string charts = loss_svg(record) + throughput_svg(record);
  EXPECT_EQ(charts.find("nan"), std::string::npos);
  EXPECT_EQ(charts.find("inf"), std::string::npos);
  for (StepRecord& step : record.steps) step.loss = NAN;
  record.validation.clear();
  EXPECT_EQ(loss_svg(record), "");
}

TEST(ReportPage, AConstantLossHasAScale) {
  RunRecord record = example(5);
  record.validation.clear();
  for (StepRecord& step : record.steps) step.loss = 0;
  EXPECT_EQ(loss_svg(record).find("nan"), std::string::npos);
  EXPECT_NE(loss_svg(record).find("<path"), std::string::npos);
}

TEST(ReportPage, ALongRunStaysSmall) { EXPECT_LT(report_html(example(100000)).size(), 300000U); }

TEST(ReportPage, ThinningKeepsPeaks) {
  Series series{"a", "c0", Series::Look::Line, {}};
  for (int i = 0; i < 100000; ++i) series.points.emplace_back(i, i == 54321 ? 100.0 : 1.0);
  const std::string chart = line_chart({"t", "u", {series}, false});
  EXPECT_NE(chart.find(">100<"), std::string::npos);
  // The peak's pixel: 4 % below the top of the plot, which starts at 46 and is 220 high.
  EXPECT_NE(chart.find(" 54.5"), std::string::npos) << chart.substr(0, 4000);
}

TEST(ReportPage, MemoryShowsTheFirstStepsAndTheLast) {
  const std::string svg = memory_svg(example(10));
  for (const char* shown : {">step 1<", ">step 2<", ">step 51<", ">step 251<"})
    EXPECT_NE(svg.find(shown), std::string::npos) << shown;
  EXPECT_EQ(svg.find(">step 100<"), std::string::npos);
  EXPECT_NE(svg.find("class=\"limit\""), std::string::npos);
}

TEST(ReportPage, IsWrittenWhole) {
  const test::TempFolder folder;
  write_report_html(example(3), folder / "report.html");
  EXPECT_EQ(read_file(folder / "report.html"), report_html(example(3)));
}

PlanPage page_with_peak(int64_t bytes) {
  return {.title = "Plan: <a model>",
          .lines = {"Plan     peak 1 & more"},
          .categories = {"parameters", "activations"},
          .moments = {{"block 0, forward", "forward", {bytes / 2, bytes / 8}},
                      {"block 1, forward", "forward", {bytes / 2, bytes / 4}},
                      {"block 1, backward", "backward", {bytes / 2, bytes / 2}},
                      {"outside any unit, step", "step", {bytes / 2, 0}}},
          .limit_bytes = bytes,
          .fit = {},
          .sections = {{"Devices", "8 <of> them"}, {"Operations", ""}}};
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(PlanPage, TheAxisHasRoundNumbersOfOneUnit) {
  const std::string gib = plan_html(page_with_peak(47 * kGiB));
  EXPECT_NE(gib.find(">10 GiB<"), std::string::npos);
  EXPECT_NE(gib.find(">40 GiB<"), std::string::npos);
  EXPECT_EQ(gib.find(">50 GiB<"), std::string::npos) << "beyond the chart";
  EXPECT_NE(plan_html(page_with_peak(900 * kMiB)).find(">200 MiB<"), std::string::npos);
}

TEST(PlanPage, PhasesAreMarkedWhereTheyChange) {
  const std::string html = plan_html(page_with_peak(47 * kGiB));
  EXPECT_EQ(count(html, ">forward</b>"), 1U);
  EXPECT_EQ(count(html, ">backward</b>"), 1U);
  EXPECT_EQ(count(html, ">step</b>"), 1U);
}

TEST(PlanPage, TheLegendHasWhatIsThere) {
  PlanPage page = page_with_peak(kGiB);
  for (PlanMoment& moment : page.moments) moment.by_category[1] = 0;
  const std::string html = plan_html(page);
  EXPECT_NE(html.find("</i>parameters"), std::string::npos);
  EXPECT_EQ(html.find("</i>activations"), std::string::npos);
}

// A row's options may be long: they wrap in a cell of a table, which a line of text would not.
TEST(PlanPage, WhatFitsIsATableThatWraps) {
  PlanPage page = page_with_peak(kGiB);
  Table table({{"reserved"}, {"options", Align::Left}});
  table.add_row({"3 GiB", "--a <b>"});
  page.fit = {.above = "Fit: & so on", .table = table.html(), .below = "train:\n  x: 1"};
  const std::string html = plan_html(page);
  EXPECT_NE(html.find("<td>3 GiB</td><td>--a &#60;b&#62;</td>"), std::string::npos) << html;
  EXPECT_NE(html.find("Fit: &#38; so on"), std::string::npos);
  EXPECT_NE(html.find(".fit td:last-child{white-space:normal"), std::string::npos);
}

TEST(PlanPage, TextIsEscaped) {
  const std::string html = plan_html(page_with_peak(kGiB));
  EXPECT_NE(html.find("a model"), std::string::npos);
  EXPECT_EQ(html.find("<a model>"), std::string::npos);
  EXPECT_EQ(html.find("1 & more"), std::string::npos);
}

TEST(PlanPage, SectionsWithoutTextAreLeftOut) {
  const std::string html = plan_html(page_with_peak(kGiB));
  EXPECT_NE(html.find(">Devices</h2>"), std::string::npos);
  EXPECT_NE(html.find("8 &#60;of&#62; them"), std::string::npos);
  EXPECT_EQ(html.find("Operations"), std::string::npos);
}

TEST(Sparkline, IsAsWideAsAskedAndReachesTheTop) {
  EXPECT_EQ(sparkline({0, 4, 8}, 3), "▁▅█");
  EXPECT_EQ(sparkline({1, 1, 8, 1, 1, 1}, 2), "█▂") << "a column shows its highest";
  EXPECT_EQ(sparkline({}, 5), "");
}

}  // namespace
}  // namespace snug::report
