// SPDX-License-Identifier: Apache-2.0
#include "report/tables.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/bytes.h"
#include "base/error.h"
#include "report/text_width.h"
#include "report/thinning.h"

namespace snug::report {
namespace {

TEST(Table, AlignsByColumns) {
  Table table({{"name", Align::Left}, {"n"}});
  table.add_row({"grüße", "1"});
  table.add_row({"日本", "1000"});
  table.add_row({"short"});
  EXPECT_EQ(table.render(),
            "name      n\n"
            "─────  ────\n"
            "grüße     1\n"
            "日本   1000\n"
            "short\n");
  EXPECT_THROW(table.add_row({"1", "2", "3"}), InternalError);
}

TEST(Table, CellsCannotCommandTheTerminal) {
  Table table({{"name", Align::Left}});
  table.add_row({"a\x1b[2J\nb"});
  EXPECT_EQ(table.render(), "name\n───────\na [2J b\n");
}

PhaseRecord phase(int64_t step, const char* name) {
  PhaseRecord p;
  p.step = step;
  p.phase = name;
  p.parameters = 256 * kMiB;
  p.activations = kGiB;
  p.allocated = kGiB + 256 * kMiB;
  p.peak = 2 * kGiB;
  p.reserved = 3 * kGiB;
  return p;
}

TEST(MemoryTable, ShowsTheFourPhases) {
  const std::vector<PhaseRecord> phases{phase(0, "before_fwd"), phase(0, "after_fwd"),
                                        phase(50, "before_fwd")};
  EXPECT_EQ(memory_table(phases),
            "Step  Phase (GiB)  Params  Grads  Optim  Acts  Work  Allocated  Peak  Reserved\n"
            "────  ───────────  ──────  ─────  ─────  ────  ────  ─────────  ────  ────────\n"
            "   1  before_fwd     0.25   0.00   0.00  1.00  0.00       1.25  2.00      3.00\n"
            "      after_fwd      0.25   0.00   0.00  1.00  0.00       1.25  2.00      3.00\n"
            "  51  before_fwd     0.25   0.00   0.00  1.00  0.00       1.25  2.00      3.00\n");
}

TEST(MemoryTable, RareColumnsOnlyWhereUsed) {
  std::vector<PhaseRecord> phases{phase(0, "before_fwd")};
  phases[0].optimizer_host = kGiB;
  EXPECT_NE(memory_table(phases).find("Optim host"), std::string::npos);
  EXPECT_EQ(memory_table(phases).find("Comm"), std::string::npos);
  EXPECT_EQ(memory_table({}).substr(0, 17), "Step  Phase (KiB)");
}

TEST(MemoryTable, SmallRunsCountInMiB) {
  PhaseRecord p;
  p.parameters = p.allocated = p.peak = p.reserved = 3 * kMiB / 2;
  EXPECT_NE(memory_table(std::span(&p, 1)).find("Phase (MiB)"), std::string::npos);
  EXPECT_NE(memory_table(std::span(&p, 1)).find("1.50"), std::string::npos);
}

TEST(Table, IsNoWiderThanTheTerminal) {
  Table table({{"reserved"},
               {"host", Align::Right, /*spare=*/true},
               {"s/step"},
               {"tokens/s", Align::Right, /*spare=*/true},
               {"options", Align::Left}});
  const std::string options =
      "--train.micro_batch_size 2 --activation_checkpointing all --optimizer_offload cpu";
  table.add_row({"10.25 GiB", "20.50 GiB", "1.25", "12,345", options});
  table.add_row({"9.25 GiB", "-", "2.50", "6,172", "(as the recipe is)"});
  for (const size_t columns : {60U, 80U, 120U, 200U}) {
    const std::string text = table.render(columns);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(display_width(line), columns) << text;
    std::istringstream words(options);
    for (std::string word; words >> word;)
      EXPECT_NE(text.find(word), text.npos) << word << " is whole\n" << text;
    for (const char* figure : {"10.25 GiB", "1.25"}) EXPECT_NE(text.find(figure), text.npos);
  }
  EXPECT_EQ(table.render(60).find("tokens/s"), std::string::npos) << "left out first";
  EXPECT_NE(table.render(200).find("tokens/s"), std::string::npos);
  EXPECT_NE(table.render(0).find(options), std::string::npos) << "in a file a row is a line";
}

TEST(MemoryBars, LargestFirstAndOneWidth) {
  const std::string bars = memory_bars(
      {{"parameters", kGiB}, {"activations", 3 * kGiB}, {"gradients", 0}}, {.width = 60});
  EXPECT_EQ(bars,
            "activations ███████████████████████████    3.00 GiB   75.0%\n"
            "parameters  █████████                      1.00 GiB   25.0%\n");
  EXPECT_EQ(memory_bars({{"gradients", 0}}), "");
}

TEST(MemoryTable, EndsWhereAnAllocationWasRefused) {
  RunRecord record;
  EXPECT_EQ(refusal_row(record).allocated, 0);
  record.steps.resize(2);
  record.steps.back().step = 2;
  record.memory.phases = {{.step = 2, .phase = "before_fwd", .optimizer_host = 7}};
  record.memory.measured = {.peak_allocated = 90, .peak_reserved = 99};
  record.out_of_memory = {.phase = "backward",
                          .requested = 5,
                          .allocated = 60,
                          .by_category = {{"parameters", 10}, {"activations", 50}}};
  const PhaseRecord row = refusal_row(record);
  EXPECT_EQ(row.step, 2) << "steps count from 0, and two are done";
  EXPECT_EQ(row.phase, "refused, backward");
  EXPECT_EQ(row.parameters, 10);
  EXPECT_EQ(row.activations, 50);
  EXPECT_EQ(row.gradients, 0);
  EXPECT_EQ(row.optimizer_host, 7);
  EXPECT_EQ(row.allocated, 60);
  EXPECT_EQ(row.peak, 90);
  EXPECT_EQ(row.reserved, 99);
  ASSERT_EQ(shown_phases(record).size(), 2U);
  EXPECT_EQ(shown_phases(record).back().phase, "refused, backward");
  record.out_of_memory->requested = 0;  // by the plan
  EXPECT_EQ(shown_phases(record).size(), 1U);
}

TEST(Epochs, WithoutALossSaySo) {
  EpochRecord epoch{.epoch = 1, .steps = 2, .skipped = 2};
  EXPECT_EQ(epoch_text(epoch), "Epoch 1: no step of 2 had a loss that is a number");
  EXPECT_NE(epoch_table(std::span(&epoch, 1)).find("–"), std::string::npos);
}

TEST(MemoryBars, TheBudgetIsTheFullWidth) {
  const std::string bars = memory_bars({{"a", kGiB}}, {.budget_bytes = 2 * kGiB, .width = 43});
  EXPECT_EQ(bars, "a ██████████              1.00 GiB  100.0%\n");
  const std::string over = memory_bars({{"a", 4 * kGiB}}, {.budget_bytes = 2 * kGiB, .width = 43});
  EXPECT_EQ(display_width(over.substr(0, over.size() - 1)), 42U);
}

TEST(Summary, HasLitGptsLinesAndOurs) {
  RunSummary summary;
  summary.input_tokens = 1000;
  summary.tokens_with_prompt = 1200;
  summary.padded_tokens = 1500000;
  summary.training_seconds = 100.126;
  summary.tokens_per_second = 12.5;
  summary.memory_bytes = 2 * kGiB;
  EXPECT_EQ(summary_block(summary),
            "| -------------------------------------------------------\n"
            "| Token Counts:\n"
            "| - Input Tokens              : 1,000\n"
            "| - Tokens w/ Prompt          : 1,200\n"
            "| - Total Tokens (w/ Padding) : 1,500,000\n"
            "| -------------------------------------------------------\n"
            "| Performance:\n"
            "| - Training Time (steps)     : 100.13 s\n"
            "| - Tok/sec                   : 14981.12 tok/s\n"
            "| - Tok/sec w/o Padding       : 12.50 tok/s\n"
            "| -------------------------------------------------------\n"
            "| Memory Usage:\n"
            "| - Memory Used               : 2.15 GB (2.00 GiB)\n"
            "| -------------------------------------------------------\n");
  summary.predicted_bytes = 2 * kGiB + kGiB / 50;
  summary.budget_bytes = 4 * kGiB;
  summary.share_of_peak = 0.5;
  summary.startup = {{}, 1.25, 3.5};
  summary.fit_seconds = 112.5;
  summary.steps = {.mean_seconds = 0.0812,
                   .median_seconds = 12.5,
                   .mean_utilization = 0.781,
                   .utilization_deviation = 0.032};
  summary.val_loss_before = 2.5;
  summary.val_loss_after = 2.25;
  const std::string block = summary_block(summary);
  for (const char* line :
       {"Planned                   : 2.02 GiB (+1.00 % off)",
        "Budget                    : 4.00 GiB (50.0 % used)", "Share of peak FLOP/s      : 50.0 %",
        "Total Time                : 112.50 s, with validation and checkpoints",
        "Step Time                 : mean 81.20 ms, median 12.50 s",
        "Utilization               : 78.1 ± 3.2 %",
        "Startup                   : 1.25 s, first step done at 3.50 s",
        "Before                    : 2.5000", "After                     : 2.2500"})
    EXPECT_NE(block.find(line), std::string::npos) << line << "\n" << block;
}

// Against Python's statistics module: mean and median of [1, 2, 3, 6], stdev([.5, .7, .9]).
TEST(Statistics, LeaveOutTheStepsThatWarmUp) {
  std::vector<StepRecord> steps;
  for (const double seconds : {100.0, 1.0, 2.0, 3.0, 6.0}) steps.push_back({.seconds = seconds});
  StepStatistics of = statistics_of(steps);
  EXPECT_EQ(of.mean_seconds, 3);
  EXPECT_EQ(of.median_seconds, 2.5);
  EXPECT_TRUE(std::isnan(of.mean_utilization));
  EXPECT_EQ(utilization_text(of), "");
  steps[0].utilization = 0.1;
  steps[1].utilization = 0.5;
  steps[2].utilization = 0.7;
  steps[4].utilization = 0.9;
  of = statistics_of(steps);
  EXPECT_DOUBLE_EQ(of.mean_utilization, 0.7);
  EXPECT_NEAR(of.utilization_deviation, 0.2, 1e-15);
  EXPECT_EQ(utilization_text(of), "70.0 ± 20.0 %");
  EXPECT_EQ(statistics_of(std::span(steps).first(1)).mean_seconds, 100) << "the only one there is";
  EXPECT_TRUE(std::isnan(statistics_of({}).mean_seconds));
  std::vector<StepRecord> many(300, {.seconds = 1});
  for (size_t i = 0; i < 10; ++i) many[i].seconds = 50;
  EXPECT_EQ(statistics_of(many).mean_seconds, 1);
  many[10].seconds = 291;
  EXPECT_EQ(statistics_of(many).mean_seconds, 2) << "ten at most";
  EXPECT_EQ(statistics_of(many).median_seconds, 1);
}

TEST(Epochs, AreTheMeansOfTheirSteps) {
  const auto step = [](int64_t epoch, double loss) {
    return StepRecord{.loss = loss, .seconds = 0.5, .tokens = 10, .epoch = epoch};
  };
  const std::vector<StepRecord> steps{step(1, 4), step(1, 3), step(2, 2), step(2, NAN), step(2, 1)};
  std::vector<EpochRecord> epochs;
  for (const StepRecord& one : steps) add(epochs, one);
  ASSERT_EQ(epochs.size(), 2U);
  EXPECT_EQ(epochs[0].loss, 3.5);
  EXPECT_EQ(epochs[1].steps, 3);
  EXPECT_EQ(epochs[1].loss, 1.5) << "without the step that was skipped";
  EXPECT_EQ(epochs[1].tokens, 30);
  EXPECT_EQ(epochs[1].seconds, 1.5);
  EXPECT_EQ(epoch_text(epochs[0]), "Epoch 1: mean training loss 3.5000 over 2 steps");
  EXPECT_EQ(epoch_table(epochs),
            "Epoch  Steps  Mean loss  Tokens  Seconds\n"
            "─────  ─────  ─────────  ──────  ───────\n"
            "    1      2     3.5000      20     1.00\n"
            "    2      3     1.5000      30     1.50\n");
  epochs.clear();
  add(epochs, StepRecord());
  EXPECT_TRUE(epochs.empty()) << "of a version that recorded none";
}

TEST(Summary, AddsUpTheRun) {
  RunRecord record;
  record.steps = {{1, 2.0, 0.5, 100, 120, 1e-3, 1, 80}, {2, 1.9, 1.5, 300, 300, 1e-3, 1, 250}};
  record.validation = {{0, 2.5, 64}, {2, 1.5, 64}};
  record.memory.predicted = MemoryPeaks{.peak_allocated = 9};
  record.memory.measured.peak_allocated = 8;
  record.device.budget_bytes = 10;
  const RunSummary s = summary_of(record);
  EXPECT_EQ(s.input_tokens, 330);
  EXPECT_EQ(s.tokens_with_prompt, 400);
  EXPECT_EQ(s.padded_tokens, 420);
  EXPECT_EQ(s.training_seconds, 2);
  EXPECT_EQ(s.tokens_per_second, 200);
  EXPECT_EQ(s.memory_bytes, 8);
  EXPECT_EQ(s.predicted_bytes, 9);
  EXPECT_EQ(s.budget_bytes, 10);
  EXPECT_EQ(s.val_loss_before, 2.5);
  EXPECT_EQ(s.val_loss_after, 1.5);
  EXPECT_EQ(summary_block(s).find("Retries"), std::string::npos);
  record.memory.measured.num_alloc_retries = 2;
  record.ranks = {{.rank = 0, .num_alloc_retries = 2}, {.rank = 1, .num_alloc_retries = 3}};
  EXPECT_NE(summary_block(summary_of(record)).find("| - Allocator Retries         : 3\n"),
            std::string::npos);
  EXPECT_EQ(summary_of({}).tokens_per_second, 0);
}

}  // namespace
}  // namespace snug::report
