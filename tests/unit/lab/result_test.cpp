// What a row's processes leave behind, as its result, and a result as a file.
// SPDX-License-Identifier: Apache-2.0
#include "lab/result.h"

#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "base/files.h"
#include "lab/collect.h"
#include "report/run_record.h"
#include "support/temp_folder.h"

namespace snug::lab {
namespace {

using nlohmann::json;

json a_plan() {
  return {{"schema", 1},
          {"model", {{"parameters", 1000}, {"trained", 10}}},
          {"device", {{"name", "A"}, {"kind", "cuda"}, {"usable_bytes", 100 * kMiB}}},
          {"fits", true},
          {"margin_bytes", 20 * kMiB},
          {"memory",
           {{"peak_allocated", 70 * kMiB},
            {"peak_reserved", 80 * kMiB},
            {"offloaded_to_host", 3},
            {"after_forward", 60 * kMiB},
            {"parameter_bytes", 4000},
            {"by_category", {{"parameters", 4000}, {"activations", 30 * kMiB}}}}},
          {"time",
           {{"step_seconds", 0.5},
            {"tokens_per_second", 128.0},
            {"model_flops_per_second", 1e12},
            {"share_of_peak", 0.25},
            {"busy_share", 0.9}}},
          {"timeline",
           {{{"unit", "block 1"},
             {"phase", "forward"},
             {"allocated", 70 * kMiB},
             {"by_category", {{"activations", 30 * kMiB}}}}}},
          {"like",
           {{"program", "litgpt"},
            {"whose", "litgpt finetune_full"},
            {"micro_batch_size", 8},
            {"tokens_per_sample", 512},
            {"fits", false},
            {"peak_allocated", 110 * kMiB},
            {"peak_reserved", 120 * kMiB},
            {"after_forward", 90 * kMiB},
            {"paged_states", 5 * kMiB},
            {"weights", 8000}}}};
}

TEST(CollectPlan, TakesFiguresOfBothPrograms) {
  RowResult result{.id = "a"};
  collect_plan(a_plan().dump(), {.exit_code = 0}, result);
  EXPECT_EQ(result.outcome, Outcome::Ok);
  EXPECT_EQ(result.reason, "");
  EXPECT_EQ(result.limit_bytes, 100 * kMiB);
  EXPECT_EQ(result.trained, 10);
  ASSERT_TRUE(result.predicted);
  EXPECT_EQ(result.predicted->peak_reserved, 80 * kMiB);
  EXPECT_EQ(result.predicted->peak_host, 3);
  EXPECT_EQ(result.predicted->after_forward, 60 * kMiB);
  EXPECT_EQ(result.predicted->device_use, 0.9);
  ASSERT_EQ(result.predicted->timeline.size(), 1U);
  EXPECT_EQ(result.predicted->timeline[0].unit, "block 1");
  ASSERT_TRUE(result.like);
  EXPECT_FALSE(result.like->fits);
  EXPECT_EQ(result.like->after_forward, 90 * kMiB);
  EXPECT_EQ(result.like_program, "litgpt");
  ASSERT_EQ(result.like_notes.size(), 2U);
  EXPECT_NE(result.like_notes[1].find("5.00 MiB"), std::string::npos) << result.like_notes[1];
}

TEST(CollectPlan, OneThatDoesNotFitSaysWhatIsMissing) {
  json plan = a_plan();
  plan["fits"] = false;
  plan["margin_bytes"] = -20 * kMiB;
  plan["memory"]["peak_reserved"] = 120 * kMiB;
  RowResult result;
  collect_plan(plan.dump(), {.exit_code = 3, .last_words = "snug: this recipe does not fit"},
               result);
  EXPECT_EQ(result.outcome, Outcome::OutOfMemory);
  EXPECT_NE(result.reason.find("20.00 MiB missing"), std::string::npos) << result.reason;
}

TEST(CollectPlan, OneOfAProcessorKnowsNoReserve) {
  json plan = a_plan();
  plan["device"]["kind"] = "cpu";
  RowResult result;
  collect_plan(plan.dump(), {.exit_code = 0}, result);
  EXPECT_EQ(result.predicted->peak_reserved, 0);
}

TEST(CollectPlan, FaultsAreErrors) {
  RowResult result;
  collect_plan("", {.exit_code = 2, .last_words = "snug: no such option\nmore"}, result);
  EXPECT_EQ(result.outcome, Outcome::Error);
  EXPECT_EQ(result.reason, "no such option");
  EXPECT_FALSE(result.predicted);
  collect_plan("{\"schema\": 1", {.exit_code = 0}, result);
  EXPECT_EQ(result.outcome, Outcome::Error);
  EXPECT_NE(result.reason.find("JSON"), std::string::npos) << result.reason;
  EXPECT_FALSE(result.predicted);
  collect_plan("", {.signal = SIGSEGV}, result);
  EXPECT_EQ(result.outcome, Outcome::Crashed);
  EXPECT_NE(result.reason.find("SIGSEGV"), std::string::npos) << result.reason;
}

// However planning ends: no guess at the output of a process that printed none.
TEST(CollectPlan, AnEndWithoutAPlanIsSaidAsItWas) {
  const auto collected = [](const std::string& text, const ProcessEnd& end) {
    RowResult result;
    collect_plan(text, end, result);
    EXPECT_FALSE(result.predicted);
    EXPECT_EQ(result.reason.find("JSON"), std::string::npos) << result.reason;
    return result;
  };
  for (const char* text : {"", "{\"schema\": 1, \"mod"}) {
    const RowResult killed =
        collected(text, {.signal = SIGKILL, .killed_by_kernel_for_memory = true});
    EXPECT_EQ(killed.outcome, Outcome::Crashed) << "the row itself may fit";
    EXPECT_NE(killed.reason.find("the kernel killed the planning"), std::string::npos)
        << killed.reason;
    const RowResult slow =
        collected(text, {.signal = SIGTERM, .timed_out = true, .seconds = 900.4});
    EXPECT_EQ(slow.outcome, Outcome::TimedOut);
    EXPECT_NE(slow.reason.find("planning was stopped after 900 s"), std::string::npos)
        << slow.reason;
  }
  const RowResult silent = collected(
      "\n", {.exit_code = 3, .last_words = "snug: out of memory on cpu\nLargest: a table"});
  EXPECT_EQ(silent.outcome, Outcome::Error);
  EXPECT_EQ(silent.reason, "planning exited with code 3 and printed no plan: out of memory on cpu");
  EXPECT_EQ(collected("", {.exit_code = 0}).reason,
            "planning exited with code 0 and printed no plan");
}

class CollectRun : public ::testing::Test {
 protected:
  RowResult collect(const report::RunRecord& record, const ProcessEnd& end) {
    report::write_run_json(record, folder_ / "run.json");
    RowResult result;
    collect_run(folder_.path(), end, result);
    return result;
  }
  report::RunRecord ok_record() const {
    report::RunRecord record;
    record.device = {.name = "cpu", .budget_bytes = 900 * kMiB};
    record.model = {.id = "m", .parameters = 50, .trainable = 40};
    for (int step = 1; step <= 4; ++step)
      record.steps.push_back({.step = step, .loss = 3.0 / step, .seconds = step == 1 ? 9.0 : step});
    record.speed.tokens_per_second = 77;
    record.memory.measured = {.peak_allocated = 700, .peak_host = 5000};
    record.memory.phases = {
        {.step = 0, .phase = "before_fwd", .parameters = 100, .allocated = 110},
        {.step = 0, .phase = "after_fwd", .parameters = 100, .activations = 50, .allocated = 300},
        {.step = 1, .phase = "after_fwd", .parameters = 100, .activations = 50, .allocated = 400}};
    return record;
  }
  test::TempFolder folder_;
};

TEST_F(CollectRun, TakesWhatWasMeasured) {
  const RowResult result = collect(ok_record(), {.exit_code = 0});
  EXPECT_EQ(result.outcome, Outcome::Ok);
  ASSERT_TRUE(result.measured);
  EXPECT_EQ(result.measured->peak_allocated, 700);
  EXPECT_EQ(result.measured->peak_host, 5000);
  EXPECT_EQ(result.measured->after_forward, 400);
  EXPECT_EQ(result.measured->parameter_bytes, 100);
  EXPECT_EQ(result.measured->step_seconds, 3);  // of 2, 3 and 4: the first one warms up
  EXPECT_EQ(result.limit_bytes, 900 * kMiB);
  EXPECT_EQ(result.losses.size(), 4U);
  EXPECT_EQ(result.losses[1].loss, 1.5);
  ASSERT_EQ(result.phases.size(), 3U);
  EXPECT_EQ(result.phases[1].by_category.at("activations"), 50);
}

TEST_F(CollectRun, TheNeediestRankCounts) {
  report::RunRecord record = ok_record();
  record.ranks = {{.rank = 0, .peak_allocated = 700}, {.rank = 1, .peak_allocated = 900}};
  EXPECT_EQ(collect(record, {.exit_code = 0}).measured->peak_allocated, 900);
}

// The plan's device may be another one, or have no such figure.
TEST_F(CollectRun, ReservedIsOfGpusAlone) {
  report::RunRecord record = ok_record();
  record.memory.measured.peak_reserved = 800;
  record.device.name = "NVIDIA A100-SXM4-80GB, 79.15 GiB";
  EXPECT_EQ(collect(record, {.exit_code = 0}).measured->peak_reserved, 800);
  record.device.name = "AVX-512 with bfloat16, 2 threads";
  RowResult planned_for_a_gpu;
  planned_for_a_gpu.predicted = Figures{.peak_allocated = 700, .peak_reserved = 900};
  report::write_run_json(record, folder_ / "run.json");
  collect_run(folder_.path(), {.exit_code = 0}, planned_for_a_gpu);
  EXPECT_EQ(planned_for_a_gpu.measured->peak_reserved, 0);
}

TEST_F(CollectRun, ThePlanIsOfTheNeediestRankToo) {
  report::RunRecord record = ok_record();
  record.memory.predicted = report::MemoryPeaks{.peak_allocated = 700};
  record.ranks = {{.rank = 0, .predicted_allocated = 700, .peak_allocated = 700},
                  {.rank = 1, .predicted_allocated = 950 * kMiB, .peak_allocated = 900}};
  const RowResult result = collect(record, {.exit_code = 0});
  EXPECT_EQ(result.predicted->peak_allocated, 950 * kMiB);
  EXPECT_FALSE(result.predicted->fits) << "of a budget of 900 MiB";
  record.ranks.clear();
  EXPECT_EQ(collect(record, {.exit_code = 0}).predicted->peak_allocated, 700);
}

TEST_F(CollectRun, OutOfMemorySaysWhoAskedForWhat) {
  report::RunRecord record = ok_record();
  record.outcome = "oom";
  record.out_of_memory = report::OutOfMemoryRecord{.phase = "backward",
                                                   .unit = "block 3",
                                                   .category = "gradients",
                                                   .requested = 64 * kMiB,
                                                   .missing = 12 * kMiB,
                                                   .allocated = 848 * kMiB,
                                                   .by_category = {{"parameters", 848 * kMiB}}};
  const RowResult result =
      collect(record, {.exit_code = 3, .last_words = "snug: out of memory on cpu"});
  EXPECT_EQ(result.outcome, Outcome::OutOfMemory);
  for (const char* part :
       {"block 3", "backward", "848.00 MiB in use + 64.00 MiB gradients", "by 12.00 MiB"})
    EXPECT_NE(result.reason.find(part), std::string::npos) << part << " in " << result.reason;
  EXPECT_EQ(result.measured->by_category.at("parameters"), 848 * kMiB);
}

TEST_F(CollectRun, AnEndIsToldByTheProcessNotByWhatItLeft) {
  report::RunRecord record = ok_record();
  EXPECT_EQ(collect(record, {.signal = SIGKILL}).outcome, Outcome::Crashed);
  EXPECT_EQ(collect(record, {.signal = SIGKILL, .killed_by_kernel_for_memory = true}).outcome,
            Outcome::OutOfMemory);
  EXPECT_EQ(collect(record, {.signal = SIGTERM, .timed_out = true}).outcome, Outcome::TimedOut);
  EXPECT_EQ(collect(record, {.exit_code = 2, .interrupted = true}).outcome, Outcome::Interrupted);
  EXPECT_EQ(collect(record, {.exit_code = 1}).outcome, Outcome::Error);
  const RowResult full = collect(
      record, {.exit_code = 2, .last_words = "snug: cannot write x: No space left on device"});
  EXPECT_EQ(full.outcome, Outcome::Error);
  EXPECT_NE(full.reason.find("disk"), std::string::npos) << full.reason;
}

// A run that could not write its record ends well all the same.
TEST_F(CollectRun, AGoodEndWithoutAWholeRecordIsAnError) {
  report::RunRecord record = ok_record();
  record.outcome = "unfinished";
  EXPECT_EQ(collect(record, {.exit_code = 0}).outcome, Outcome::Error);
  std::filesystem::remove(folder_ / "run.json");
  RowResult result;
  collect_run(folder_.path(), {.exit_code = 0}, result);
  EXPECT_EQ(result.outcome, Outcome::Error);
  EXPECT_NE(result.reason.find("run.json"), std::string::npos) << result.reason;
}

TEST_F(CollectRun, LossesThatAreNoNumbersAreLeftOut) {
  report::RunRecord record = ok_record();
  record.steps[1].loss = std::numeric_limits<double>::quiet_NaN();
  const RowResult result = collect(record, {.exit_code = 0});
  EXPECT_EQ(result.losses.size(), 3U);
  write_file_atomically(folder_ / "row.json", row_json(result));
  EXPECT_EQ(row_json(read_row_json(folder_ / "row.json")), row_json(result));
}

class LabFiles : public ::testing::Test {
 protected:
  std::string error_of(const std::function<void()>& read) {
    try {
      read();
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
  test::TempFolder folder_;
};

TEST_F(LabFiles, AResultIsReadBackAsItWas) {
  RowResult result{.id = "a", .command = "snug finetune_full \"x\" \xc3\xa4"};
  collect_plan(a_plan().dump(), {.exit_code = 0}, result);
  result.outcome = Outcome::TimedOut;
  result.measured = Figures{.fits = false, .peak_allocated = int64_t{1} << 40};
  const auto path = folder_ / "row.json";
  write_file_atomically(path, row_json(result));
  const RowResult back = read_row_json(path);
  EXPECT_EQ(row_json(back), row_json(result));
  EXPECT_EQ(back.outcome, Outcome::TimedOut);
  EXPECT_EQ(back.measured->peak_allocated, int64_t{1} << 40);
  EXPECT_EQ(back.like->peak_reserved, 120 * kMiB);
  EXPECT_EQ(back.command, result.command);
}

TEST_F(LabFiles, DamagedFilesAreNamed) {
  const auto path = folder_ / "row.json";
  for (const char* text : {"", "{", "[]", "{\"schema\": 1, \"seconds\": \"x\"}"}) {
    write_file_atomically(path, text);
    EXPECT_NE(error_of([&] { read_row_json(path); }).find(path.string()), std::string::npos)
        << text;
  }
  write_file_atomically(path, "{\"schema\": 9}");
  EXPECT_NE(error_of([&] { read_row_json(path); }).find("another version"), std::string::npos);
}

TEST_F(LabFiles, AFolderTellsItsRunWithoutTheRecipes) {
  Suite suite{.name = "s", .title = "T", .file = "/gone/s.yaml"};
  suite.models["m"] = {.checkpoint = "c", .config = "d", .scaled_config = "e"};
  suite.groups.push_back(
      {.kind = Group::Kind::Search, .id = "g", .over = "train.micro_batch_size"});
  for (const char* id : {"a", "b", "c"}) {
    Row row;
    row.id = id;
    row.options = {{"precision", "bf16-true"}};
    row.expected = Expected::OutOfMemory;
    row.comparisons = {{.quantity = Comparison::Quantity::Time,
                        .relation = Comparison::Relation::More,
                        .than = "a"}};
    row.published.iteration_seconds = 0.5;
    row.published.reserved = {1e9, 2e9};
    row.explained = {"Because."};
    row.value = 8;
    suite.rows.push_back(row);
  }
  const LabRecord record{.suite = "s", .mode = "plan", .rows = {"a", "c"}};
  EXPECT_NE(error_of([&] { read_lab_run(folder_.path()); }).find("lab.json"), std::string::npos);
  write_file_atomically(folder_ / "suite.json", suite_json(suite));
  write_file_atomically(folder_ / "lab.json", lab_json(record));
  std::filesystem::create_directories(folder_ / "rows" / "c");
  write_file_atomically(folder_ / "rows" / "c" / "row.json",
                        row_json({.id = "c", .outcome = Outcome::OutOfMemory}));
  std::filesystem::create_directories(folder_ / "rows" / "a");
  write_file_atomically(folder_ / "rows" / "a" / "row.json", "{\"id\": \"a\", \"outc");
  const LabRun run = read_lab_run(folder_.path());
  EXPECT_EQ(run.mode, Mode::Plan);
  ASSERT_EQ(run.rows.size(), 2U);
  EXPECT_EQ(run.find_row("b"), nullptr);
  const Row& row = *run.find_row("c");
  EXPECT_EQ(row.options, suite.rows[2].options);
  EXPECT_EQ(row.published.iteration_seconds, 0.5);
  EXPECT_EQ(row.published.reserved, suite.rows[2].published.reserved);
  EXPECT_EQ(row.comparisons[0].relation, Comparison::Relation::More);
  EXPECT_EQ(row.value, 8);
  EXPECT_EQ(run.suite.models.at("m").scaled_config, "e");
  EXPECT_EQ(run.suite.rows[1].explained, suite.rows[1].explained);
  EXPECT_EQ(suite_json(run.suite), suite_json(suite));
  EXPECT_EQ(run.find("a")->outcome, Outcome::NotRun);
  EXPECT_NE(run.find("a")->reason.find("cannot be read"), std::string::npos) << "a damaged record";
  EXPECT_EQ(run.find("c")->outcome, Outcome::OutOfMemory);
}

TEST(ResultOf, WhatWasMadeFromOtherWordsIsNoResult) {
  const LabRecord record{.made_from = {{"a", "words"}}};
  const auto result = [&](const std::string& id, const std::string& made_from) {
    return result_of(record, id,
                     RowResult{.id = id, .outcome = Outcome::Crashed, .made_from = made_from});
  };
  EXPECT_EQ(result("a", "words").outcome, Outcome::Crashed);
  const RowResult other = result("a", "other words");
  EXPECT_EQ(other.outcome, Outcome::NotRun);
  EXPECT_NE(other.reason.find("not since"), std::string::npos) << other.reason;
  EXPECT_EQ(result("b", "other words").outcome, Outcome::Crashed) << "a record that does not say";
  EXPECT_EQ(result_of(record, "a", std::nullopt).outcome, Outcome::NotRun);
}

}  // namespace
}  // namespace snug::lab
