// SPDX-License-Identifier: Apache-2.0
#include "report/thinning.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "report/run_page.h"
#include "report/tables.h"

namespace snug::report {
namespace {

constexpr int64_t kSteps = 100'000, kEpochSteps = 30;

StepRecord step_of(int64_t number) {
  return {.step = number,
          .loss = number == 7 ? NAN : 2.0 + static_cast<double>(number % 2),
          .seconds = 0.5,
          .tokens = number % 50,
          .padded_tokens = 50,
          .lr = 1e-5,
          .grad_norm = 1,
          .raw_tokens = 3,
          .epoch = (number - 1) / kEpochSteps + 1,
          .utilization = 0.5};
}

RunRecord run_of(int64_t steps, const std::function<void(const RunRecord&)>& see = nullptr) {
  RunRecord record;
  for (int64_t number = 1; number <= steps; ++number) {
    const StepRecord step = step_of(number);
    add(record.steps, step);
    add(record.epochs, step);
    add(record.validation, {.step = number - 1, .loss = 3, .tokens = 9});
    if (see) see(record);
  }
  return record;
}

TEST(Thinning, AShortRunIsKeptWhole) {
  const RunRecord record = run_of(kMostEntries);
  ASSERT_EQ(record.steps.size(), kMostEntries);
  for (const StepRecord& step : record.steps) ASSERT_EQ(step.count, 1);
}

TEST(Thinning, ALongRunIsBoundedAndItsSumsAreThoseOfAllSteps) {
  size_t most = 0;
  const RunRecord record = run_of(kSteps, [&](const RunRecord& r) {
    most = std::max({most, r.steps.size(), r.validation.size(), r.epochs.size()});
  });
  EXPECT_LE(most, kMostEntries);
  EXPECT_EQ(num_steps(record.steps), kSteps);
  EXPECT_EQ(record.steps.front().loss, 3) << "the first step is kept whole";
  int64_t last = 0, tokens = 0, all_tokens = 0, widest = 1;
  for (const StepRecord& step : record.steps) {
    ASSERT_EQ(step.step, last + step.count) << "no step is missing, none is there twice";
    const bool is_new = step.step > kSteps - static_cast<int64_t>(kNewest);
    ASSERT_TRUE(step.count == 1 || !is_new) << step.step;
    ASSERT_NEAR(step.loss, 2.5, step.count == 1 ? 0.5 : 0.03) << "the mean, without step 7";
    last = step.step;
    widest = std::max(widest, step.count);
    tokens += step.tokens;
  }
  EXPECT_EQ(widest, 64) << "evenly over the run: of 100,000 steps no entry stands for more";
  for (int64_t number = 1; number <= kSteps; ++number) all_tokens += step_of(number).tokens;
  EXPECT_EQ(tokens, all_tokens);
  const StepStatistics statistics = statistics_of(record.steps);
  EXPECT_DOUBLE_EQ(statistics.mean_seconds, 0.5);
  EXPECT_DOUBLE_EQ(statistics.median_seconds, 0.5);
  EXPECT_EQ(record.validation.front().step, 0) << "the loss before training is kept";
  EXPECT_EQ(summary_of(record).val_loss_before, 3);
}

TEST(Thinning, EpochsAreExact) {
  const RunRecord record = run_of(kSteps);
  ASSERT_EQ(record.epochs.size(), 3334U);
  const EpochRecord& epoch = record.epochs[1];  // steps 31 to 60
  EXPECT_EQ(epoch.steps, kEpochSteps);
  double loss = 0;
  for (int64_t number = 31; number <= 60; ++number) loss += step_of(number).loss / kEpochSteps;
  EXPECT_NEAR(epoch.loss, loss, 1e-12);
  EXPECT_EQ(record.epochs.front().skipped, 1);
  std::vector<EpochRecord> many;  // of a step each
  for (int64_t number = 1; number <= 10'000; ++number)
    add(many, {.step = number, .loss = 1.0 * static_cast<double>(number), .epoch = number});
  EXPECT_LE(many.size(), kMostEntries);
  EXPECT_EQ(many[1].epoch, 3);
  EXPECT_EQ(many[1].loss, 2.5);
  EXPECT_NE(epoch_table(many).find("2–3"), std::string::npos);
}

TEST(Thinning, TheFilesOfARunTenTimesAsLongAreNoLarger) {
  const RunRecord shorter = run_of(kSteps / 10), longer = run_of(kSteps);
  const auto entries = [](const RunRecord& r) { return r.steps.size() + r.validation.size(); };
  const double bytes = static_cast<double>(run_json(shorter).size()) / entries(shorter);
  EXPECT_LT(static_cast<double>(run_json(longer).size()) / entries(longer), 1.3 * bytes);
  EXPECT_LT(run_json(longer).size(), 5U << 20);
  EXPECT_LT(report_html(longer).size(), 2 * report_html(shorter).size());
}

}  // namespace
}  // namespace snug::report
