// SPDX-License-Identifier: Apache-2.0
#include "lab/report/verdict.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "support/lab_samples.h"

namespace snug::lab {
namespace {

using test::add_row;

constexpr int64_t kLimit = 80 * kGiB;

Figures of_peak(double gib, double seconds = 1) {
  Figures figures;
  figures.peak_allocated = static_cast<int64_t>(gib * static_cast<double>(kGiB));
  figures.peak_reserved = figures.peak_allocated;
  figures.after_forward = figures.peak_allocated / 2;
  figures.fits = figures.peak_allocated <= kLimit;
  figures.step_seconds = seconds;
  return figures;
}

// One planned row: what snug and the other program (0: not counted) need, in GiB.
LabRun planned(Expected expected, double snug, double like) {
  LabRun run;
  RowResult& result = add_row(run, "a");
  run.rows[0].expected = expected;
  result.limit_bytes = kLimit;
  result.predicted = of_peak(snug);
  result.outcome = result.predicted->fits ? Outcome::Ok : Outcome::OutOfMemory;
  if (like > 0) {
    result.like = of_peak(like);
    result.like->step_seconds = 0;
    result.like_program = "litgpt";
  }
  return run;
}

RowVerdict judged(const LabRun& run) { return verdict_of(run, run.rows[0]); }

TEST(Verdict, APublishedOutcomeIsHeldAgainstTheOtherProgramsCount) {
  struct Case {
    Expected expected;
    double snug, like;
    Verdict verdict;
  };
  const Case cases[] = {
      {Expected::Ok, 40, 60, Verdict::AsExpected},
      {Expected::OutOfMemory, 90, 120, Verdict::AsExpected},
      {Expected::OutOfMemory, 40, 120, Verdict::BeyondIt},  // that is what snug is for
      {Expected::OutOfMemory, 40, 60, Verdict::Differs},    // the count does not explain it
      {Expected::OutOfMemory, 90, 60, Verdict::Differs},
      {Expected::Ok, 40, 120, Verdict::Differs},
      {Expected::Ok, 90, 60, Verdict::Differs},
      {Expected::Ok, 40, 0, Verdict::AsExpected},
      {Expected::OutOfMemory, 40, 0, Verdict::Differs},  // nothing says why it ran out there
      {Expected::OutOfMemory, 90, 0, Verdict::AsExpected},
      {Expected::Unknown, 40, 60, Verdict::Unknown},
  };
  for (const Case& c : cases) {
    const RowVerdict verdict = judged(planned(c.expected, c.snug, c.like));
    EXPECT_EQ(verdict.verdict, c.verdict)
        << name(c.expected) << ", snug " << c.snug << ", like " << c.like;
    const bool has_to_say = c.verdict == Verdict::Differs || c.verdict == Verdict::BeyondIt;
    EXPECT_EQ(verdict.reasons.empty(), !has_to_say);
  }
}

TEST(Verdict, OfAnotherDeviceNothingIsJudged) {
  LabRun run = planned(Expected::Ok, 90, 90);
  run.rows[0].published.reserved = {40.0 * kGiB};
  run.suite.device = run.record.device = "a100-80";
  EXPECT_EQ(judged(run).verdict, Verdict::Differs);
  run.record.device = "rtx-4090";
  const RowVerdict verdict = judged(run);
  EXPECT_EQ(verdict.verdict, Verdict::Unknown);
  EXPECT_TRUE(verdict.reasons.empty());
  ASSERT_EQ(verdict.figures.size(), 1U) << "it is shown all the same";
  EXPECT_FALSE(verdict.figures[0].is_held());
  EXPECT_FALSE(is_judged(run));
}

TEST(Verdict, ReasonsNameBothFigures) {
  LabRun run = planned(Expected::OutOfMemory, 40, 120);
  const auto reason = [&] {
    const RowVerdict verdict = judged(run);
    return verdict.reasons.size() == 1 ? verdict.reasons[0] : "";
  };
  const std::string rest =
      ": out of memory, and LitGPT would need 120.0 GiB where 80.0 GiB is available; snug's plan "
      "fits: 40.0 GiB of "
      "80.0 GiB.";
  EXPECT_EQ(reason(), "Expected" + rest) << "no source, nothing published";
  run.suite.source = "a paper";
  EXPECT_EQ(reason(), "Published" + rest);
  run.mode = Mode::Scaled;
  EXPECT_FALSE(is_held_against_published(run));
}

TEST(Verdict, FiguresAreMetWithinATenth) {
  const double counted = 60.0 * static_cast<double>(kGiB);
  for (const auto& [published, is_met] :
       {std::pair{counted / 1.0999, true}, std::pair{counted / 1.1001, false},
        std::pair{counted / 0.9001, true}, std::pair{counted / 0.8999, false}}) {
    LabRun run = planned(Expected::Ok, 40, 60);
    run.rows[0].published.reserved = {1.0, published};  // the largest of the ranks
    const RowVerdict verdict = judged(run);
    ASSERT_EQ(verdict.figures.size(), 1U);
    EXPECT_EQ(verdict.figures[0].with, "litgpt");
    EXPECT_DOUBLE_EQ(verdict.figures[0].published, published);
    EXPECT_EQ(verdict.figures[0].within_a_tenth(), is_met) << published;
    EXPECT_EQ(verdict.verdict, is_met ? Verdict::AsExpected : Verdict::Differs);
  }
}

TEST(Verdict, AFigureIsHeldAgainstItsOwnKind) {
  LabRun run = planned(Expected::Unknown, 40, 60);
  run.rows[0].published.allocated_after_forward = {30.0 * static_cast<double>(kGiB)};
  EXPECT_EQ(judged(run).verdict, Verdict::AsExpected) << "half of the peak, as made up above";
  run.results[0].like->after_forward = 0;
  const RowVerdict unknown = judged(run);
  EXPECT_EQ(unknown.verdict, Verdict::Unknown) << "nothing to hold it against";
  EXPECT_FALSE(unknown.figures.at(0).is_held());
}

TEST(Verdict, SnugsOwnTimeDoesNotDecideAboutAnotherPrograms) {
  LabRun run = planned(Expected::Ok, 40, 60);
  run.rows[0].published.iteration_seconds = 5;
  const RowVerdict verdict = judged(run);
  EXPECT_EQ(verdict.verdict, Verdict::AsExpected);
  ASSERT_EQ(verdict.figures.size(), 1U);
  EXPECT_DOUBLE_EQ(verdict.figures[0].deviation(), -0.8);
  EXPECT_EQ(verdict.figures[0].with, "snug");
}

TEST(Verdict, AMeasuredRowIsJudgedByHowItEnded) {
  const auto verdict = [](Expected expected, Outcome outcome) {
    LabRun run = planned(expected, 40, 0);
    run.mode = Mode::Run;
    run.results[0].outcome = outcome;
    if (outcome == Outcome::Ok) run.results[0].measured = of_peak(41);
    return judged(run).verdict;
  };
  EXPECT_EQ(verdict(Expected::Ok, Outcome::Ok), Verdict::AsExpected);
  EXPECT_EQ(verdict(Expected::OutOfMemory, Outcome::OutOfMemory), Verdict::AsExpected);
  EXPECT_EQ(verdict(Expected::Ok, Outcome::OutOfMemory), Verdict::Differs);
  EXPECT_EQ(verdict(Expected::OutOfMemory, Outcome::Ok), Verdict::Differs);
  for (const Outcome outcome :
       {Outcome::Error, Outcome::Crashed, Outcome::TimedOut, Outcome::Interrupted, Outcome::NotRun})
    EXPECT_EQ(verdict(Expected::Ok, outcome), Verdict::Unknown) << name(outcome);
}

TEST(Verdict, PublishedFiguresSayNothingOfScaledRuns) {
  LabRun run = planned(Expected::Ok, 40, 60);
  run.mode = Mode::Scaled;
  run.results[0].measured = of_peak(0.5);
  run.rows[0].published.reserved = {70.0 * static_cast<double>(kGiB)};
  EXPECT_EQ(judged(run).verdict, Verdict::AsExpected);
  EXPECT_TRUE(judged(run).figures.empty());
}

struct Compared {
  Comparison::Relation relation;
  double mine, theirs;
  bool holds;
};

TEST(Verdict, ComparisonsHoldOrSayBothFigures) {
  using Relation = Comparison::Relation;
  const Compared cases[] = {{Relation::Less, 10, 11, true},   {Relation::Less, 11, 10, false},
                            {Relation::Less, 10, 10, false},  {Relation::More, 11, 10, true},
                            {Relation::More, 10, 11, false},  {Relation::Same, 10, 10.9, true},
                            {Relation::Same, 10, 11.2, false}};
  for (const auto quantity : {Comparison::Quantity::Memory, Comparison::Quantity::Time})
    for (const Compared& c : cases) {
      LabRun run;
      run.mode = Mode::Run;
      const bool is_time = quantity == Comparison::Quantity::Time;
      for (const char* id : {"a", "b"}) {
        const double value = *id == 'a' ? c.mine : c.theirs;
        RowResult& result = add_row(run, id);
        result.outcome = Outcome::Ok;
        result.measured = is_time ? of_peak(5, value) : of_peak(value, 5);
      }
      run.rows[0].comparisons = {{quantity, c.relation, "b"}};
      const RowVerdict verdict = judged(run);
      EXPECT_EQ(verdict.verdict, c.holds ? Verdict::AsExpected : Verdict::Differs)
          << c.mine << " beside " << c.theirs;
      if (c.holds) continue;
      ASSERT_EQ(verdict.reasons.size(), 1U);
      EXPECT_NE(verdict.reasons[0].find(is_time ? "Time per step" : "Peak memory"),
                std::string::npos);
    }
}

// Small models on a processor that others use as well.
TEST(Verdict, ScaledRowsAreNotHeldToTimes) {
  LabRun run;
  run.mode = Mode::Scaled;
  for (const char* id : {"a", "b"}) {
    RowResult& result = add_row(run, id);
    result.outcome = Outcome::Ok;
    result.measured = of_peak(5, *id == 'a' ? 10 : 1);
  }
  for (const auto quantity : {Comparison::Quantity::Time, Comparison::Quantity::Memory}) {
    run.rows[0].comparisons = {{quantity, Comparison::Relation::Less, "b"}};
    EXPECT_EQ(judged(run).verdict,
              quantity == Comparison::Quantity::Time ? Verdict::Unknown : Verdict::Differs);
  }
}

TEST(Verdict, OneKindOfFigureIsNeverComparedWithAnother) {
  LabRun run;
  run.mode = Mode::Run;
  add_row(run, "a");
  add_row(run, "b");
  run.rows[0].comparisons = {{Comparison::Quantity::Memory, Comparison::Relation::Less, "b"}};
  EXPECT_EQ(judged(run).verdict, Verdict::Unknown) << "neither was run";
  run.results[0].outcome = Outcome::Ok;
  run.results[0].measured = of_peak(20);
  EXPECT_EQ(judged(run).verdict, Verdict::Unknown) << "the other was not run";
  run.results[1].predicted = of_peak(10);
  EXPECT_EQ(judged(run).verdict, Verdict::Unknown) << "measured beside planned";
  run.results[0].predicted = of_peak(9);
  EXPECT_EQ(judged(run).verdict, Verdict::AsExpected) << "planned beside planned";
}

TEST(Verdict, ARowWithoutAResultIsUnknown) {
  LabRun run = planned(Expected::Ok, 40, 60);
  run.results.clear();
  EXPECT_EQ(judged(run).verdict, Verdict::Unknown);
}

}  // namespace
}  // namespace snug::lab
