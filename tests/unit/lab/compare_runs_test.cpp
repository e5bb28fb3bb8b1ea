// Ordinary runs side by side: figures worked out by hand.
// SPDX-License-Identifier: Apache-2.0
#include "lab/report/reports.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/temp_folder.h"

namespace snug::lab {
namespace {

using nlohmann::json;

report::RunRecord run_of(double seconds, int64_t peak, const json& recipe) {
  report::RunRecord record;
  record.model = {.id = "models/tiny", .parameters = 1000, .trainable = 10};
  record.recipe = recipe;
  record.steps = {{.step = 1, .loss = 4, .seconds = 9, .tokens = 100},
                  {.step = 2, .loss = 3, .seconds = seconds, .tokens = 100},
                  {.step = 3, .loss = 2.5, .seconds = seconds, .tokens = 100}};
  record.memory.measured.peak_allocated = peak;
  record.memory.measured.by_category = {{"parameters", peak / 2}};
  return record;
}

std::vector<NamedRun> two_runs() {
  return {
      {"a", run_of(2, 4 << 20,
                   {{"precision", "32-true"}, {"train", {{"epochs", 1}}}, {"out_dir", "a"}})},
      {"b", run_of(1, 1 << 20,
                   {{"precision", "bf16-true"}, {"train", {{"epochs", 1}}}, {"out_dir", "b"}})}};
}

bool has_line(const std::string& text, const std::string& begin, const std::string& end) {
  for (size_t at = 0; at < text.size();) {
    const size_t stop = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, stop - at);
    if (line.starts_with(begin) && line.ends_with(end)) return true;
    at = stop + 1;
  }
  return false;
}

TEST(CompareRuns, ShowsFiguresWithTheirChanges) {
  const std::string text = compare_runs_text(two_runs());
  EXPECT_TRUE(has_line(text, "median step", "(-50 %)")) << text;
  EXPECT_TRUE(has_line(text, "peak", "(-75 %)")) << text;
  EXPECT_TRUE(has_line(text, "  parameters", "(-75 %)")) << text;
  EXPECT_TRUE(has_line(text, "loss, last tenth", "2.5000")) << text;
  EXPECT_EQ(text.find("on the host"), text.npos) << "what no run has";
}

TEST(CompareRuns, ShowsWhereRecipesDiffer) {
  std::vector<NamedRun> runs = two_runs();
  const std::string text = compare_runs_text(runs);
  EXPECT_TRUE(has_line(text, "precision", "bf16-true")) << text;
  EXPECT_EQ(text.find("epochs"), text.npos) << text;
  EXPECT_EQ(text.find("out_dir"), text.npos) << text;
  runs[1].record.recipe = runs[0].record.recipe;
  EXPECT_NE(compare_runs_text(runs).find("The recipes are the same."), std::string::npos);
}

TEST(CompareRuns, GivesTheSameAsJson) {
  std::vector<NamedRun> runs = two_runs();
  runs.push_back({"c", report::RunRecord{.outcome = "oom"}});
  const json all = json::parse(compare_runs_json(runs));
  EXPECT_EQ(all["runs"].size(), 3U);
  EXPECT_EQ(all["runs"][1]["step_seconds"], 1.0);
  EXPECT_TRUE(all["runs"][2]["step_seconds"].is_null());
  EXPECT_EQ(all["recipe_differences"]["precision"], json({"32-true", "bf16-true", "–"}));
  EXPECT_EQ(compare_runs_text(runs).find("nan"), std::string::npos);
}

TEST(CompareRuns, FindsTheRecord) {
  const test::TempFolder folder;
  EXPECT_TRUE(run_record_in(folder.path()).empty());
  report::write_run_json(report::RunRecord{}, folder / "run.json");
  EXPECT_EQ(run_record_in(folder.path()), folder / "run.json");
  EXPECT_EQ(run_record_in(folder / "run.json"), folder / "run.json");
}

}  // namespace
}  // namespace snug::lab
