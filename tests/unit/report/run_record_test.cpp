// SPDX-License-Identifier: Apache-2.0
#include "report/run_record.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "support/temp_folder.h"

namespace snug::report {
namespace {

using Json = nlohmann::json;

RunRecord example() {
  RunRecord record;
  record.command = "snug finetune_full m";
  record.recipe = {{"train", {{"micro_batch_size", 8}}}, {"precision", "bf16-true"}};
  record.model = {"tiny", 134515008, 134515008};
  record.device = {"cpu", 2147483648};
  record.steps = {{1, 2.31, 0.8, 512, 600, 2e-5, 1.0, 400, 1, 0.5},
                  {2, 2.25, 0.7, 500, 600, 2e-5, 0.9, 390, 1, 0.75}};
  record.tokens_per_epoch = 2024;
  record.epochs = {{1, 2, 2.28, 1012, 1.5}};
  record.speed = {640.5, 1e12, 0.41, {0.75, 0.5, 0.625, 0.125}};
  record.memory.predicted = MemoryPeaks{100, 200, 0, 90, {{"parameters", 60}}};
  record.memory.measured = {101, 201, 301, 91, {{"parameters", 60}, {"activations", 41}}, 5};
  record.memory.phases = {{0, "before_fwd", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 2}};
  record.validation = {{0, 2.5, 64}};
  record.out_of_memory = OutOfMemoryRecord{"forward",
                                           "blocks.1",
                                           "workspace",
                                           4,
                                           3,
                                           9,
                                           {{"data", 9}},
                                           {{"blocks.0", 9}},
                                           {{"--x 1", "slow", 8, "snug y --x 1"}}};
  record.mesh = "fsdp=2";
  record.ranks = {{1, "cpu", 10, 11, 12, 4}};
  record.resumptions = {{3, 1.5}};
  record.samples = {{"q", "e", "b", "a"}};
  record.notes = {"what else to know"};
  record.startup = {{{"libraries", 0.25}, {"data", 0.5}}, 0.75, 1.5};
  record.fit_seconds = 11.5;
  record.seconds_total = 12.5;
  return record;
}

TEST(RunJson, HoldsEveryFigureUnderItsName) {
  const Json json = Json::parse(run_json(example()));
  EXPECT_EQ(json, Json::parse(R"({
    "schema": 1, "outcome": "ok", "reason": "", "notes": ["what else to know"], "command": "snug finetune_full m",
    "recipe": {"train": {"micro_batch_size": 8}, "precision": "bf16-true"},
    "model": {"id": "tiny", "parameters": 134515008, "trainable": 134515008},
    "device": {"name": "cpu", "budget_bytes": 2147483648}, "world_size": 1, "mesh": "fsdp=2",
    "ranks": [{"rank": 1, "device": "cpu", "predicted_allocated": 10, "peak_allocated": 11, "peak_host": 12,
               "num_alloc_retries": 4}],
    "steps": [
      {"step": 1, "loss": 2.31, "seconds": 0.8, "tokens": 512, "padded_tokens": 600, "lr": 2e-5, "grad_norm": 1.0,
       "raw_tokens": 400, "epoch": 1, "utilization": 0.5},
      {"step": 2, "loss": 2.25, "seconds": 0.7, "tokens": 500, "padded_tokens": 600, "lr": 2e-5, "grad_norm": 0.9,
       "raw_tokens": 390, "epoch": 1, "utilization": 0.75}],
    "epochs": [{"epoch": 1, "steps": 2, "loss": 2.28, "tokens": 1012, "seconds": 1.5}],
    "tokens_per_epoch": 2024,
    "speed": {"tokens_per_second": 640.5, "model_flops_per_second": 1e12, "share_of_peak": 0.41,
              "steps": {"mean_seconds": 0.75, "median_seconds": 0.5, "mean_utilization": 0.625,
                        "utilization_deviation": 0.125}},
    "memory": {
      "predicted": {"peak_allocated": 100, "peak_reserved": 200, "on_disk": 90, "by_category": {"parameters": 60}},
      "measured": {"peak_allocated": 101, "peak_reserved": 201, "peak_host": 301, "on_disk": 91,
                   "by_category": {"parameters": 60, "activations": 41}, "num_alloc_retries": 5},
      "phases": [{"step": 0, "phase": "before_fwd", "parameters": 1, "gradients": 2, "optimizer_device": 3,
                  "optimizer_host": 4, "activations": 5, "workspace": 6, "communication": 7, "data": 8,
                  "allocated": 9, "peak": 10, "reserved": 11, "micro_batch": 2}]},
    "validation": [{"step": 0, "loss": 2.5, "tokens": 64}],
    "out_of_memory": {"phase": "forward", "unit": "blocks.1", "category": "workspace", "requested": 4,
                      "missing": 3, "allocated": 9, "by_category": {"data": 9}, "by_unit": {"blocks.0": 9},
                      "suggestions": [{"options": "--x 1", "cost": "slow", "peak_allocated": 8,
                                       "command": "snug y --x 1"}]},
    "resumptions": [{"step": 3, "seconds_total": 1.5}],
    "samples": [{"question": "q", "expected": "e", "before": "b", "after": "a"}],
    "startup_s": {"stages": {"libraries": 0.25, "data": 0.5}, "first_step_begun": 0.75,
                  "first_step_ended": 1.5},
    "fit_seconds": 11.5,
    "seconds_total": 12.5})"));
}

TEST(RunJson, KeepsTheOrderOfTheContractAndOneLineAStep) {
  const std::string text = run_json(example());
  EXPECT_LT(text.find("\"schema\""), text.find("\"outcome\""));
  EXPECT_LT(text.find("\"outcome\""), text.find("\"model\""));
  EXPECT_NE(text.find("\n    {\"step\":2,\"loss\":2.25,"), std::string::npos) << text;
  EXPECT_EQ(text.back(), '\n');
}

TEST(RunJson, AnEmptyRunIsStillWhole) {
  const Json json = Json::parse(run_json({}));
  EXPECT_TRUE(json.at("steps").is_array());
  EXPECT_TRUE(json.at("recipe").is_object());
  EXPECT_TRUE(json.at("memory").at("measured").at("by_category").is_object());
  EXPECT_TRUE(json.at("memory").at("predicted").is_null());
}

TEST(RunJson, NumbersThatAreNoneBecomeNull) {
  RunRecord record = example();
  record.steps[0].loss = std::numeric_limits<double>::quiet_NaN();
  record.steps[1].grad_norm = std::numeric_limits<double>::infinity();
  record.recipe["lr"] = -std::numeric_limits<double>::infinity();
  const Json json = Json::parse(run_json(record));
  EXPECT_TRUE(json["steps"][0]["loss"].is_null());
  EXPECT_TRUE(json["steps"][1]["grad_norm"].is_null());
  EXPECT_TRUE(json["recipe"]["lr"].is_null());
}

TEST(RunJson, HostileStringsStayReadable) {
  RunRecord record = example();
  record.command = "a\"b\\\n\x01 \xff\xfe grüße";
  record.recipe["\xf0\x28"] = "\xc0\xaf";
  record.memory.measured.by_category["\xed\xa0\x80"] = 1;
  const Json json = Json::parse(run_json(record));
  EXPECT_EQ(json["command"], "a\"b\\\n\x01 \xef\xbf\xbd\xef\xbf\xbd grüße");
}

TEST(RunJson, ReadsBackToTheSame) {
  const test::TempFolder folder;
  const auto path = folder / "run.json";
  RunRecord without = example();
  without.memory.predicted.reset();
  without.out_of_memory.reset();
  without.steps[0].loss = std::numeric_limits<double>::quiet_NaN();
  for (const RunRecord& record : {example(), RunRecord{}, without}) {
    write_run_json(record, path);
    EXPECT_EQ(run_json(read_run_json(path)), run_json(record));
  }
}

// A checkpoint's, that a run of this version goes on from.
TEST(RunJson, AFileOfAnEarlierVersionIsRead) {
  const test::TempFolder folder;
  auto json = nlohmann::ordered_json::parse(run_json(example()));
  json.erase("notes");
  json.erase("samples");
  json.erase("epochs");
  json.erase("tokens_per_epoch");
  json.erase("fit_seconds");
  json["speed"].erase("steps");
  json["memory"]["measured"].erase("num_alloc_retries");
  for (auto& step : json["steps"]) step.erase("utilization");
  write_file_atomically(folder / "run.json", json.dump());
  RunRecord expected = example();
  expected.notes.clear();
  expected.samples.clear();
  expected.epochs.clear();
  expected.tokens_per_epoch = 0;
  expected.fit_seconds = 0;
  expected.speed.steps = {};
  expected.memory.measured.num_alloc_retries = 0;
  for (StepRecord& step : expected.steps) step.utilization = std::nan("");
  EXPECT_EQ(run_json(read_run_json(folder / "run.json")), run_json(expected));
}

TEST(RunJson, ADamagedFileIsNamed) {
  const test::TempFolder folder;
  const auto path = folder / "run.json";
  RunRecord endless = example(), huge = example();
  endless.steps.front().tokens = std::numeric_limits<int64_t>::max();
  huge.memory.measured.by_category["parameters"] = std::numeric_limits<int64_t>::max();
  for (const std::string& text :
       {std::string(), std::string("{\"schema\": 1}"), std::string("[1, 2]"),
        std::string("{\"schema\": \"one\"}"), run_json(endless), run_json(huge)}) {
    write_file_atomically(path, text);
    try {
      read_run_json(path);
      ADD_FAILURE() << text << " was read";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
    }
  }
}

TEST(RunJson, IsWholeOrAbsent) {
  const test::TempFolder folder;
  const auto path = folder / "run.json";
  write_run_json(example(), path);
  EXPECT_EQ(read_file(path), run_json(example()));
  RunRecord later = example();
  later.outcome = "oom";
  write_run_json(later, path);
  EXPECT_EQ(Json::parse(read_file(path))["outcome"], "oom");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  EXPECT_THROW(write_run_json(later, folder / "absent" / "run.json"), UserError);
}

}  // namespace
}  // namespace snug::report
