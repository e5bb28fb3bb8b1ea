// Every quantity that an explanation gives is looked up in the figures it was made from: sums over
// the categories that it names, before and after, and which way they went.
// SPDX-License-Identifier: Apache-2.0
#include "lab/report/explain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <regex>

#include "base/bytes.h"
#include "support/lab_samples.h"

namespace snug::lab {
namespace {

using test::add_row;
using test::row_of;

const std::map<std::string, std::string> kWords = {{"weights", "parameters"},
                                                   {"gradients", "gradients"},
                                                   {"optimizer states", "optimizer"},
                                                   {"activations", "activations"},
                                                   {"workspace", "workspace"},
                                                   {"communication buffers", "communication"},
                                                   {"batches", "data"}};

double unit_bytes(const std::string& unit) {
  return static_cast<double>(unit == "GiB"   ? kGiB
                             : unit == "MiB" ? kMiB
                             : unit == "KiB" ? kKiB
                                             : 1);
}

// Whether "12.3" of a unit is these bytes, rounded to the digits that are there.
bool says(const std::string& digits, const std::string& unit, int64_t bytes) {
  std::string plain = digits;
  std::erase(plain, ',');
  const size_t point = plain.find('.');
  const int decimals = point == std::string::npos ? 0 : static_cast<int>(plain.size() - point - 1);
  const double half = 0.5 * std::pow(10, -decimals) * 1.0001;
  return std::abs(std::stod(plain) - static_cast<double>(bytes) / unit_bytes(unit)) <= half;
}

int64_t sum_of(const Figures& figures, const std::vector<std::string>& categories) {
  int64_t sum = 0;
  for (const std::string& category : categories) sum += figures.by_category.at(category);
  return sum;
}

std::vector<std::string> categories_in(const std::string& text) {
  std::vector<std::string> out;
  for (const auto& [words, category] : kWords)
    if (text.find(words) != std::string::npos) out.push_back(category);
  return out;
}

Figures random_figures(std::mt19937& random) {
  std::uniform_real_distribution<double> log_size(8, 36);
  Figures figures;
  for (const auto& [words, category] : kWords) {
    const bool is_none = random() % 5 == 0;
    figures.by_category[category] = is_none ? 0 : static_cast<int64_t>(std::exp2(log_size(random)));
    figures.peak_allocated += figures.by_category[category];
  }
  figures.step_seconds = std::exp2(log_size(random) - 20);
  figures.tokens_per_second = std::exp2(log_size(random) - 15);
  return figures;
}

// The clauses of "Compared with a, peak memory falls (…): weights fall (…) and …; a weight takes
// …".
void check_against(const std::string& text, const Figures& before, const Figures& after) {
  static const std::regex peak(
      "peak memory (falls|rises) \\(([0-9.,]+)( [A-Za-z]+)? → ([0-9.,]+) "
      "([A-Za-z]+)\\)");
  static const std::regex clause(
      "((?:(?:weights|gradients|optimizer states|activations|workspace|communication "
      "buffers|batches)(?:, | and )?)+) (falls?|rises?|takes? half|takes? a quarter|takes? twice "
      "as "
      "much|takes? four times as much) \\(([0-9.,]+)( [A-Za-z]+)? → ([0-9.,]+) ([A-Za-z]+)\\)");
  static const std::regex one_side(
      "(weights|gradients|optimizer states|activations|workspace|communication buffers|batches) "
      "(?:now takes? ([0-9.,]+) ([A-Za-z]+)|(?:is|are) gone \\(before: ([0-9.,]+) "
      "([A-Za-z]+)\\))");
  const auto unit_before = [](const std::smatch& m, size_t own, size_t shared) {
    return m[own].matched ? m[own].str().substr(1) : m[shared].str();
  };
  std::smatch m;
  if (std::regex_search(text, m, peak)) {
    EXPECT_TRUE(says(m[2], unit_before(m, 3, 5), before.peak_allocated)) << text;
    EXPECT_TRUE(says(m[4], m[5], after.peak_allocated)) << text;
    EXPECT_EQ(m[1] == "falls", after.peak_allocated < before.peak_allocated) << text;
  } else {
    EXPECT_NE(text.find("peak memory stays at"), std::string::npos) << text;
    EXPECT_NEAR(static_cast<double>(before.peak_allocated),
                static_cast<double>(after.peak_allocated),
                0.011 * static_cast<double>(after.peak_allocated));
  }
  for (auto it = std::sregex_iterator(text.begin(), text.end(), clause);
       it != std::sregex_iterator(); ++it) {
    const std::vector<std::string> named = categories_in((*it)[1]);
    const int64_t was = sum_of(before, named), is = sum_of(after, named);
    EXPECT_TRUE(says((*it)[3], unit_before(*it, 4, 6), was)) << text;
    EXPECT_TRUE(says((*it)[5], (*it)[6], is)) << text;
    const std::string verb = (*it)[2];
    const double ratio = static_cast<double>(is) / static_cast<double>(was);
    if (verb.starts_with("fall")) {
      EXPECT_LT(ratio, 1) << text;
    }
    if (verb.starts_with("rise")) {
      EXPECT_GT(ratio, 1) << text;
    }
    if (verb.ends_with("half")) {
      EXPECT_NEAR(ratio, 0.5, 0.02) << text;
    }
    if (verb.ends_with("quarter")) {
      EXPECT_NEAR(ratio, 0.25, 0.01) << text;
    }
    if (verb.ends_with("twice as much")) {
      EXPECT_NEAR(ratio, 2, 0.08) << text;
    }
    if (verb.ends_with("four times as much")) {
      EXPECT_NEAR(ratio, 4, 0.16) << text;
    }
  }
  for (auto it = std::sregex_iterator(text.begin(), text.end(), one_side);
       it != std::sregex_iterator(); ++it) {
    const std::string category = kWords.at((*it)[1]);
    const bool is_new = (*it)[2].matched;
    EXPECT_EQ(before.by_category.at(category) == 0, is_new) << text;
    EXPECT_EQ(after.by_category.at(category) == 0, !is_new) << text;
    EXPECT_TRUE(is_new ? says((*it)[2], (*it)[3], after.by_category.at(category))
                       : says((*it)[4], (*it)[5], before.by_category.at(category)))
        << text;
  }
}

TEST(Explain, WhatItSaysIsWhatTheFiguresSay) {
  std::mt19937 random(20261122);
  for (int round = 0; round < 400; ++round) {
    LabRun run;
    add_row(run, "a").predicted = random_figures(random);
    RowResult& second = add_row(run, "b", "a");
    second.predicted = random_figures(random);
    // Often something stays, halves or doubles.
    for (const auto& [words, category] : kWords) {
      const int64_t before = run.results[0].predicted->by_category.at(category);
      const unsigned kind = random() % 5;
      if (kind > 2) continue;
      const int64_t now = kind == 0 ? before : kind == 1 ? before / 2 : before * 2;
      second.predicted->peak_allocated += now - second.predicted->by_category.at(category);
      second.predicted->by_category[category] = now;
    }
    for (RowResult& result : run.results) {
      result.predicted->fits = true;
      result.outcome = Outcome::Ok;
    }
    const std::vector<std::string> text = explain(run, run.rows[1]);
    ASSERT_EQ(text.size(), 2U);
    check_against(text[0], *run.results[0].predicted, *run.results[1].predicted);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

TEST(Explain, NamesTheHalvedCategoriesTogether) {
  const LabRun run = test::planned_sample();
  const std::vector<std::string> text = explain(run, *run.find_row("ls04-bf16-true"));
  ASSERT_EQ(text.size(), 2U);
  EXPECT_NE(
      text[0].find("weights, gradients, optimizer states and activations take half (40.4 → 20.2 "
                   "GiB)"),
      std::string::npos)
      << text[0];
  EXPECT_NE(text[0].find("a weight takes 2 bytes instead of 4"), std::string::npos) << text[0];
  EXPECT_EQ(text[1],
            "A step would take 0.42 s instead of 2.40 s (39,010 tokens/s instead of 6,827).");
}

TEST(Explain, ARowThatRanOutSaysWhatTookMostAndHowMuchWasMissing) {
  const LabRun run = test::planned_sample();
  const std::vector<std::string> text = explain(run, *run.find_row("ls01-baseline"));
  ASSERT_FALSE(text.empty());
  const Figures& plan = *run.find("ls01-baseline")->predicted;
  std::smatch m;
  const std::regex form(
      "Out of memory: it needs ([0-9.]+) GiB; available: ([0-9.]+) GiB, so ([0-9.]+) GiB is "
      "missing; activations take the most \\(([0-9.]+) GiB\\), then optimizer states "
      "\\(([0-9.]+) GiB\\)\\.");
  ASSERT_TRUE(std::regex_match(text[0], m, form)) << text[0];
  EXPECT_TRUE(says(m[1], "GiB", plan.peak_reserved));
  EXPECT_TRUE(says(m[2], "GiB", 79 * kGiB));
  EXPECT_TRUE(says(m[3], "GiB", plan.peak_reserved - 79 * kGiB));
  EXPECT_TRUE(says(m[4], "GiB", plan.by_category.at("activations")));
  EXPECT_TRUE(says(m[5], "GiB", plan.by_category.at("optimizer")));
}

TEST(Explain, NeverComparesMeasuredWithPlanned) {
  LabRun run = test::measured_sample();
  run.results[3].measured.reset();
  const std::vector<std::string> text = explain(run, *run.find_row("m4-slow"));
  ASSERT_FALSE(text.empty());
  EXPECT_NE(text[0].find("peak memory stays at 40.7 GiB"), std::string::npos)
      << "planned beside planned, not beside 40.1 measured: " << text[0];
}

// Activations tower at the end of the forward; without them the peak is where gradients are whole.
TEST(Explain, APeakThatMovedIsSaidFirstAndMaximaAreCompared) {
  LabRun run;
  const auto add = [&](const std::string& id, int64_t activations) {
    RowResult& result = add_row(run, id, id == "a" ? "" : "a");
    Figures figures;
    const auto add_moment = [&](const char* unit, const char* phase, Bytes bytes) {
      Moment moment{unit, phase, 0, std::move(bytes)};
      for (const auto& [category, size] : moment.by_category) moment.allocated += size;
      if (moment.allocated > figures.peak_allocated) {
        figures.peak_allocated = moment.allocated;
        figures.by_category = moment.by_category;
      }
      figures.timeline.push_back(std::move(moment));
    };
    add_moment("head", "forward", {{"parameters", 4 * kGiB}, {"activations", activations}});
    add_moment("embedding", "backward", {{"parameters", 4 * kGiB}, {"gradients", 4 * kGiB}});
    result.predicted = figures;
    result.outcome = Outcome::Ok;
  };
  add("a", 20 * kGiB);
  add("b", 2 * kGiB);
  add("c", 10 * kGiB);
  const std::vector<std::string> moved = explain(run, run.rows[1]);
  ASSERT_GE(moved.size(), 2U);
  EXPECT_EQ(moved[0], "The peak is now in embedding, backward (before: head, forward).");
  EXPECT_EQ(
      moved[1],
      "Compared with a, peak memory falls (24.0 → 8.00 GiB); by category, each at its highest: "
      "activations fall (20.0 → 2.00 GiB).")
      << "gradients are at both times 4 GiB at their most";
  const std::vector<std::string> stayed = explain(run, run.rows[2]);
  EXPECT_EQ(
      stayed[0],
      "Compared with a, peak memory falls (24.0 → 14.0 GiB): activations take half (20.0 → 10.0 "
      "GiB).");
  // Measured, the place is the plan's, where its peak is the measured one.
  run.mode = Mode::Run;
  for (RowResult& result : run.results) {
    result.measured = result.predicted;
    result.measured->timeline.clear();
  }
  EXPECT_EQ(explain(run, run.rows[1])[0],
            "The peak is now in embedding, backward (before: head, forward), as planned.");
  run.results[1].measured->peak_allocated *= 2;
  EXPECT_TRUE(explain(run, run.rows[1])[0].starts_with("Compared with a, "))
      << "not where it planned";
}

TEST(Explain, ATimeThatTheTableDoesNotHaveIsNotQuoted) {
  LabRun run = test::planned_sample();
  ASSERT_FALSE(run.find("ls01-baseline")->predicted->fits);
  const std::vector<std::string> text = explain(run, *run.find_row("ls02-small-batch"));
  EXPECT_TRUE(text.back().starts_with("A step would take 0.61 s (")) << text.back();
  EXPECT_EQ(text.back().find("instead of"), std::string::npos) << text.back();
  LabRun measured = test::measured_sample();
  for (const std::string& sentence : explain(measured, *measured.find_row("m4-slow")))
    EXPECT_EQ(sentence.find("A step"), std::string::npos) << "it timed out: " << sentence;
}

TEST(Explain, ABaseThatWasNotSelectedIsNamed) {
  LabRun run = test::planned_sample();
  run.suite.rows = run.rows;
  run.rows.erase(run.rows.begin());
  run.results.erase(run.results.begin());
  const std::vector<std::string> text = explain(run, *run.find_row("ls02-small-batch"));
  ASSERT_GE(text.size(), 2U);
  EXPECT_EQ(text[1], "It is compared with ls01-baseline, which was not run.");
  EXPECT_EQ(changes_text(run, *run.find_row("ls02-small-batch")), "train.micro_batch_size 32 → 8");
}

TEST(Explain, IsNeverEmpty) {
  for (const LabRun& run :
       {test::planned_sample(), test::measured_sample(), test::hostile_sample(), LabRun{}})
    for (const Row& row : run.rows) {
      const std::vector<std::string> text = explain(run, row);
      ASSERT_FALSE(text.empty()) << row.id;
      for (const std::string& sentence : text) EXPECT_TRUE(sentence.ends_with('.')) << sentence;
    }
  LabRun run;
  add_row(run, "a");
  run.rows[0].not_run = "nothing was published";
  EXPECT_EQ(explain(run, run.rows[0]), std::vector<std::string>{"Not run: nothing was published."});
}

TEST(Changes, AreOptionsAgainstTheRowItCameFrom) {
  const LabRun run = test::planned_sample();
  const auto changes = [&](const char* id) { return changes_text(run, *run.find_row(id)); };
  EXPECT_EQ(changes("ls01-baseline"), "");
  EXPECT_EQ(changes("ls02-small-batch"), "train.micro_batch_size 32 → 8");
  EXPECT_EQ(changes("ls03-accumulate"), "train.global_batch_size 32");
  EXPECT_EQ(changes("ls05-bf16-mixed"),
            "precision 32-true → bf16-mixed, no train.global_batch_size 32");
  EXPECT_EQ(changes("wide-b4"), "train.micro_batch_size 2 → 4") << "the value before it";
}

// As in a matrix of batch and technique: the row just before differs in both.
TEST(Changes, WithoutABaseTheRowOfFewestOtherOptionsIsTaken) {
  LabRun run;
  const auto add = [&](const std::string& id, Settings options) {
    add_row(run, id).predicted = Figures{.peak_allocated = kGiB};
    run.rows.back().options = std::move(options);
  };
  add("b2-plain", {{"batch", "2"}});
  add("b2-checkpointing", {{"batch", "2"}, {"activation_checkpointing", "all"}});
  add("b8-plain", {{"batch", "8"}});
  add("b9-plain", {{"batch", "9"}});
  EXPECT_EQ(changes_text(run, run.rows[2]), "batch 2 → 8");
  EXPECT_TRUE(explain(run, run.rows[2])[0].starts_with("Compared with b2-plain, "));
  EXPECT_EQ(changes_text(run, run.rows[3]), "batch 8 → 9") << "the nearest of several";
}

TEST(Changes, WordsOfTheSuiteWin) {
  LabRun run = test::planned_sample();
  row_of(run, "ls02-small-batch").change = "micro-batch 32 → 8";
  EXPECT_EQ(changes_text(run, *run.find_row("ls02-small-batch")), "micro-batch 32 → 8");
}

}  // namespace
}  // namespace snug::lab
