// SPDX-License-Identifier: Apache-2.0
#include "watch/monitor/view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/bytes.h"
#include "report/text_width.h"
#include "support/live_sample.h"

namespace snug::monitor {
namespace view_test {

using Lines = std::vector<std::string>;

RankLook rank_look(int rank, int world_size) {
  RankLook look;
  look.live = test::training_rank(rank, world_size);
  look.is_here = true;
  look.use = machine::ProcessUse{.processor_seconds = 10, .resident = 3 * kGiB, .threads = 9};
  look.processor_percent = 93;
  return look;
}

Look look_of(int ranks) {
  Look look{.folder = "out/finetune/full", .run_folder = "out/finetune/full", .time = 200.5};
  look.cores = 8;
  for (int rank = 0; rank < ranks; ++rank) look.ranks.push_back(rank_look(rank, ranks));
  machine::Gpu gpu;
  gpu.name = "NVIDIA A100-SXM4-40GB";
  gpu.memory_total = 40 * kGiB;
  gpu.memory_used = 16 * kGiB;
  gpu.busy_percent = 97;
  gpu.power_watts = 312;
  gpu.temperature = 61;
  look.gpus.gpus = {gpu};
  return look;
}

std::string joined(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

constexpr TextStyle kPlain{.unicode = false, .colours = false};

std::string plain(const Look& look, int columns = 100) {
  return joined(view(look, {.columns = columns, .style = kPlain}));
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

Look ended(const std::string& outcome, const std::string& reason = "") {
  Look look = look_of(1);
  look.ranks[0].live.state = "ended";
  look.ranks[0].live.outcome = outcome;
  look.ranks[0].live.reason = reason;
  look.ranks[0].use.reset();
  return look;
}

TEST(View, ShowsAllThereIs) {
  const std::string text = plain(look_of(1));
  for (const auto& [category, bytes] : test::training_rank().by_category)
    EXPECT_TRUE(has(text, category)) << category;
  for (const char* part : {"out/finetune/full",
                           "training",
                           "1:40",
                           "0:23 left",
                           "checkpoints/some/model",
                           "snug finetune_full",
                           "12/40",
                           "30 %",
                           "7.00 GiB of 20.00 GiB",
                           "peak 14.00 GiB",
                           "planned 15.00 GiB",
                           "12,345 tok/s",
                           "41 % of peak",
                           "0.83 s/step",
                           "2.3125",
                           "0.9 of 8 cores",
                           "3.00 GiB resident",
                           "97 % busy",
                           "16.00 GiB of 40.00 GiB",
                           "312 W",
                           "61 °C",
                           "node1"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
}

// The widths and heights of real terminals, and some that nobody has.
TEST(View, NoLineIsWiderThanTheTerminalAndNoPictureHigher) {
  Look many = look_of(40);
  many.suite = SuiteLook{.name = "litgpt-single",
                         .mode = "scaled",
                         .current = "ls03",
                         .done = 2,
                         .total = 9,
                         .newest = {{"ls02", "oom"}, {"ls01", "ok"}}};
  for (const Look& look : {look_of(1), many, ended("oom", std::string(300, 'x')), Look{}}) {
    for (const int columns : {1, 10, 20, 40, 60, 80, 120, 200}) {
      for (const int rows : {1, 5, 10, 24, 50}) {
        for (const TextStyle style : {kPlain, TextStyle{}}) {
          const Lines lines =
              view(look, {.columns = columns, .rows = rows, .style = style, .keys = true});
          EXPECT_LE(lines.size(), static_cast<size_t>(rows));
          for (const std::string& line : lines)
            EXPECT_LE(report::display_width(line), static_cast<size_t>(columns)) << line;
        }
      }
    }
  }
}

TEST(View, WithoutColoursThereIsNoEscapeAndInAsciiNoOtherLetter) {
  Look look = look_of(2);
  look.gpus.gpus.clear();  // their degrees have a sign of their own
  for (const int columns : {40, 80, 120}) {
    const std::string text = plain(look, columns);
    EXPECT_FALSE(has(text, "\x1b"));
    EXPECT_TRUE(std::ranges::all_of(text, [](char c) { return c > 0; })) << text;
  }
  const std::string coloured = joined(view(look, {.columns = 80}));
  EXPECT_TRUE(has(coloured, "\x1b[") && has(coloured, "█"));
}

TEST(View, AtFortyColumnsTheFiguresAreWhole) {
  const std::string text = plain(look_of(1), 40);
  EXPECT_TRUE(has(text, "communication    1.00 GiB    2.00 GiB\n")) << text;
  EXPECT_TRUE(has(text, "12,345 tok/s")) << text;
  // What has no room is left out, not cut.
  EXPECT_TRUE(has(text, "Memory    7.00 GiB of 20.00 GiB\n")) << text;
  EXPECT_TRUE(has(text, "Speed     12,345 tok/s, 41 % of peak\n")) << text;
  EXPECT_TRUE(has(text, "rank state        step      memory\n")) << text;
}

// Where a large part has no room, smaller ones of less weight take it.
TEST(View, NoRowIsLeftEmptyThatSomethingWouldFit) {
  const std::string text =
      joined(view(look_of(4), {.columns = 40, .rows = 15, .style = kPlain, .keys = true}));
  EXPECT_FALSE(has(text, "activations")) << text;
  EXPECT_TRUE(has(text, "\n3    training")) << text;
}

TEST(View, ASmallTerminalKeepsWhatMattersMost) {
  const std::string text =
      joined(view(look_of(4), {.columns = 80, .rows = 8, .style = kPlain, .keys = true}));
  for (const char* part : {"training", "12/40", "Memory", "q quit"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  EXPECT_FALSE(has(text, "Command")) << text;
}

TEST(View, ManyProcessesThoseThatWentWrongFirst) {
  Look look = look_of(64);
  look.ranks[60].is_gone = true;
  look.ranks[60].use.reset();
  const std::string text =
      joined(view(look, {.columns = 100, .rows = 36, .style = kPlain, .keys = true}));
  const size_t gone = text.find("\n60 "), first = text.find("\n0 ");
  ASSERT_NE(gone, text.npos) << text;
  ASSERT_NE(first, text.npos) << text;
  EXPECT_LT(gone, first);
  EXPECT_TRUE(has(text, " more\n")) << text;
}

TEST(View, ADeadProcessIsNamed) {
  Look look = look_of(2);
  look.ranks[1].is_gone = true;
  look.ranks[1].silent_seconds = 75;
  look.ranks[1].use.reset();
  EXPECT_EQ(state_word(look), "gone");
  EXPECT_FALSE(is_over(look)) << "the other one is still there";
  const std::string text = plain(look, 120);
  EXPECT_TRUE(has(text, "gone")) << text;
  EXPECT_TRUE(has(text, "process 1001, last seen 1:15 ago")) << text;
  look.ranks[0].is_gone = true;
  EXPECT_TRUE(is_over(look));
  EXPECT_TRUE(has(ending_sentence(look), "rank 0 (process 1000) stopped unexpectedly"));
}

TEST(View, TheEndIsSaid) {
  const Look oom = ended("oom", "asked for 1.00 GiB more than the budget");
  EXPECT_TRUE(is_over(oom));
  EXPECT_EQ(state_word(oom), "oom");
  EXPECT_TRUE(has(plain(oom), "the run ended: out of memory: asked for 1.00 GiB more"));
  EXPECT_TRUE(has(plain(ended("ok")), "the run ended: ok after 12 steps"));
  EXPECT_TRUE(has(plain(ended("error", "no such file")), "the run ended: error: no such file"));
}

TEST(View, TheEndIsSaidInFull) {
  const std::string text = plain(ended("oom", "block 5, forward: 2.75 MiB more for workspace"), 40);
  EXPECT_TRUE(has(text, "\nforward: 2.75 MiB more for workspace\n")) << text;
  EXPECT_TRUE(has(text, "the run ended: out of memory: block 5,\n")) << text;
}

TEST(View, OneProcessOutOfMemoryIsTheRunsEnd) {
  Look look = look_of(2);
  for (RankLook& rank : look.ranks) rank.live.state = "ended";
  look.ranks[0].live.outcome = "error";
  look.ranks[0].live.reason = "lost rank 1";
  look.ranks[1].live.outcome = "oom";
  look.ranks[1].live.reason = "asked for too much";
  EXPECT_TRUE(is_over(look));
  EXPECT_TRUE(has(ending_sentence(look), "out of memory: asked for too much"))
      << ending_sentence(look);
  // The others may have been ended for it.
  look.ranks[0].live.state = "training";
  look.ranks[0].is_gone = true;
  EXPECT_EQ(state_word(look), "oom");
  EXPECT_TRUE(has(ending_sentence(look), "out of memory: asked for too much"));
}

// A process on another machine counts as over once the first process has ended.
TEST(View, ProcessesElsewhereAreOverWithTheFirst) {
  Look look = look_of(2);
  look.ranks[1].is_here = false;
  look.ranks[1].use.reset();
  look.ranks[1].silent_seconds = 3600;
  EXPECT_FALSE(is_over(look));
  EXPECT_TRUE(has(plain(look, 120), "last update 1:00:00 ago"));
  look.ranks[0].live.state = "ended";
  look.ranks[0].live.outcome = "ok";
  EXPECT_TRUE(is_over(look));
}

TEST(View, WaitsForARunThatHasNotBegun) {
  Look look{.folder = "out/new"};
  EXPECT_EQ(state_word(look), "waiting");
  EXPECT_FALSE(is_over(look));
  EXPECT_TRUE(has(plain(look), "Waiting for the run to start."));
  EXPECT_EQ(plain_line(look), "waiting");
}

TEST(View, ASuitesProgress) {
  Look look = look_of(1);
  look.suite = SuiteLook{.name = "blip2-single",
                         .mode = "scaled",
                         .current = "b03",
                         .done = 2,
                         .total = 4,
                         .newest = {{"b02", "oom"}, {"b01", "ok"}}};
  const std::string text = plain(look);
  for (const char* part : {"2/4 rows", "blip2-single (scaled): now b03", "done: b02 oom, b01 ok"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  EXPECT_FALSE(is_over(look));
  EXPECT_TRUE(has(plain_line(look), "blip2-single 2/4 rows, b03: training, step 12/40"));
  look.suite->current = "";
  EXPECT_TRUE(has(plain(look), "between rows")) << plain(look);
  EXPECT_FALSE(has(plain(look), "left")) << "that was the last row's";
  EXPECT_EQ(plain_line(look), "blip2-single 2/4 rows");
  look.suite->is_over = true;
  EXPECT_TRUE(has(plain(look), "stopped")) << plain(look);
  look.suite->done = 4;
  EXPECT_TRUE(has(plain(look), " done\n")) << plain(look);
  EXPECT_EQ(ending_sentence(look), "the suite blip2-single ended: 4 rows are done");
}

// A file may hold anything.
TEST(View, WhatComesFromFilesCannotSteerTheTerminal) {
  Look look = look_of(1);
  look.ranks[0].live.model = "evil\x1b[2Jmodel\n";
  look.ranks[0].live.state = "a\x1b]0;title\x07";
  look.ranks[0].live.by_category["x\x1b[31m"] = kGiB;
  for (const std::string& line : view(look, {.columns = 100, .style = kPlain}))
    EXPECT_TRUE(std::ranges::none_of(line, [](char c) { return c >= 0 && c < 0x20; })) << line;
}

TEST(View, LargestOfWhatIsShownIsTheScaleWithoutABudget) {
  Look look = look_of(1);
  look.ranks[0].live.budget = 0;
  const std::string text = plain(look);
  EXPECT_TRUE(has(text, "|  15.00 GiB\n")) << "the plan's peak, marked at the bar's end\n" << text;
}

TEST(View, OtherGpusAreNotShown) {
  Look look = look_of(1);
  machine::Gpu other = look.gpus.gpus[0];
  other.index = 1;
  other.memory_used = 5 * kGiB;
  look.gpus.gpus[0].process_bytes[1000] = kGiB;
  look.gpus.gpus.push_back(other);
  const std::string text = plain(look);
  EXPECT_TRUE(has(text, "GPU 0")) << text;
  EXPECT_FALSE(has(text, "GPU 1")) << text;
}

TEST(View, AnyGpuOfTheKindWhereTheDriverCountsOtherProcesses) {
  const std::string text = plain(look_of(1));
  EXPECT_TRUE(has(text, "GPU 0")) << text;
  Look on_cpu = look_of(1);
  on_cpu.ranks[0].live.device = "AMD EPYC";
  EXPECT_FALSE(has(plain(on_cpu), "GPU 0"));
}

TEST(View, HelpTellsWhatTheWordsMean) {
  for (const int columns : {40, 80}) {
    const std::string text =
        joined(view(look_of(1), {.columns = columns, .style = kPlain, .help = true}));
    for (const auto& [category, bytes] : test::training_rank().by_category)
      EXPECT_TRUE(has(text, category)) << category;
    for (const char* whole : {"by what it is for:\n", "kept for backward\n",
                              "of the running operator\n", "the planned peak\n"})
      EXPECT_TRUE(has(text, whole)) << text;
  }
}

TEST(View, PlainLine) {
  EXPECT_EQ(plain_line(look_of(1)),
            "training, step 12/40, loss 2.3125, 12,345 tok/s, 7.00 GiB of 20.00 GiB, peak 14.00 "
            "GiB, planned 15.00 GiB, 0:23 left");
}

TEST(View, ThePlainLineOfAProcessThatIsGoneForeseesNothing) {
  Look look = look_of(1);
  look.ranks[0].is_gone = true;
  EXPECT_TRUE(has(plain_line(look), "gone, step 12/40")) << plain_line(look);
  EXPECT_FALSE(has(plain_line(look), "left")) << plain_line(look);
}

TEST(View, JsonHasWhatAProgramWants) {
  Look look = look_of(2);
  look.ranks[1].is_gone = true;
  look.ranks[1].use.reset();
  look.ranks[1].processor_percent.reset();
  const nlohmann::json json = nlohmann::json::parse(look_json(look));
  EXPECT_EQ(json["state"], "gone");
  EXPECT_EQ(json["over"], false);
  EXPECT_EQ(json["ranks"].size(), 2U);
  EXPECT_EQ(json["ranks"][0]["memory"]["by_category"]["gradients"], kGiB);
  EXPECT_EQ(json["ranks"][0]["processor_percent"], 93);
  EXPECT_EQ(json["ranks"][1]["gone"], true);
  EXPECT_TRUE(json["ranks"][1]["resident_bytes"].is_null());
  EXPECT_EQ(json["gpus"][0]["busy_percent"], 97);
  EXPECT_TRUE(json["suite"].is_null());
}

}  // namespace view_test
}  // namespace snug::monitor
