// When a run stops, which model it keeps, and how an adapter trains on.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "system/program.h"

namespace snug::tests {
namespace {

namespace keep_best_test {

using nlohmann::json;
using Words = std::vector<std::string>;

// Held-out rows get worse soon: there are few to learn from, and the rate is high.
Words overfitting(const fs::path& rows, const fs::path& out, const Words& more) {
  Words words = finetune_words(
      rows, out,
      {"--train.epochs", "40", "--data.val_split_fraction", "0.25", "--optimizer.lr", "0.05",
       "--eval.interval", "4", "--train.lr_schedule", "constant", "--train.save_interval", "none"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

double best_loss(const json& record) {
  double best = record["validation"][0]["loss"];
  for (const json& validation : record["validation"])
    best = std::min(best, validation["loss"].get<double>());
  return best;
}

// What `model` loses on the rows that a run held out.
double loss_of(const fs::path& model, const fs::path& rows, const Words& more = {}) {
  Words plain{"--data.prompt_style", "plain"};
  plain.insert(plain.end(), more.begin(), more.end());
  return evaluated(model, rows, plain)["loss"];
}

TEST(KeepBest, TheModelIsThatOfTheBestValidationAndTheRunStopsBehindIt) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 32);
  const Result result = run(overfitting(
      rows, folder / "out", {"--train.keep_best", "true", "--train.early_stopping", "3"}));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const json record = read_run(folder / "out");
  const json& best = record["best_validation"];
  EXPECT_EQ(best["value"], best_loss(record));
  EXPECT_EQ(best["later"], 3);
  EXPECT_EQ(best["step"].get<int64_t>() + 3 * 4, record["steps"].back()["step"]);
  EXPECT_LT(record["steps"].size(), 120U);  // of 40 epochs
  EXPECT_NE(result.output.find("none of the last 3 validations was better than that of step"),
            std::string::npos)
      << result.output;
  EXPECT_EQ(json::parse(read_file(folder / "out/final/best.json"))["step"], best["step"]);
  EXPECT_NEAR(loss_of(folder / "out/final", rows), best["value"], 1e-5);
  EXPECT_GT(record["validation"].back()["loss"], best["value"]);
  EXPECT_EQ(record["memory"]["predicted"]["peak_allocated"],
            record["memory"]["measured"]["peak_allocated"]);
}

TEST(KeepBest, AResumedRunKnowsTheBest) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 32);
  const Words keeps{"--train.keep_best", "true", "--train.save_interval", "4", "--resume", "auto"};
  const auto with_steps = [&](const fs::path& out, const char* steps) {
    Words words = overfitting(rows, out, keeps);
    words.insert(words.end(), {"--train.max_steps", steps});
    const Result result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return result.output;
  };
  with_steps(folder / "whole", "48");
  with_steps(folder / "parts", "20");
  with_steps(folder / "parts", "48");
  const json whole = read_run(folder / "whole"), parts = read_run(folder / "parts");
  EXPECT_EQ(parts["best_validation"], whole["best_validation"]);
  EXPECT_TRUE(read_file(folder / "parts/final/model.safetensors") ==
              read_file(folder / "whole/final/model.safetensors"));
}

// Trained further from its end, a run does not lose what it ended with.
TEST(KeepBest, TheLastValidationOfARunThatGoesOnCounts) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 32);
  for (const char* steps : {"8", "10"}) {  // a validation is due, and is not
    SCOPED_TRACE(steps);
    const fs::path out = folder / steps;
    const auto train = [&](const char* most, const char* rate) {
      const Result result =
          run(overfitting(rows, out,
                          {"--train.keep_best", "true", "--train.save_last_state", "true",
                           "--resume", "auto", "--train.max_steps", most, "--optimizer.lr", rate,
                           "--data.val_split_fraction", "0.25"}));
      EXPECT_EQ(result.exit_code, 0) << result.output;
      return read_run(out)["best_validation"];
    };
    const json best = train(steps, "0.003");
    EXPECT_EQ(best["step"].dump(), steps);
    const std::string model = read_file(out / "final/model.safetensors");
    const json later = train("18", "0.5");  // far too much
    EXPECT_EQ(later["step"], best["step"]);
    EXPECT_EQ(later["value"], best["value"]);
    EXPECT_TRUE(read_file(out / "final/model.safetensors") == model);
  }
}

TEST(KeepBest, RefusesWhatCannotBe) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 32);
  const auto refused = [&](const Words& more, const std::string& part) {
    expect_part(run(finetune_words(rows, folder / "out", more)), 2, part);
  };
  refused({"--train.keep_best", "true", "--train.save_model", "false"}, "leave one of them out");
  refused({"--train.keep_best", "true", "--train.best_metric", "accuracy"},
          "objective sft has none; use train.best_metric loss");
  refused({"--train.early_stopping", "2", "--data.val_split_fraction", "0"},
          "no rows are held out to validate on");
}

// An adapter of a base with weights.
class TrainedOn : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result made = run(finetune_words(rows_, folder_ / "base", {"--train.max_steps", "1"}));
    ASSERT_EQ(made.exit_code, 0) << made.output;
  }
  // All rows in each step, and an optimizer without states: what has been trained in two runs is
  // what one run trains.
  Words words(const fs::path& model, const std::string& out, const std::string& steps,
              const Words& more = {}) const {
    Words all = finetune_words(rows_, folder_ / out,
                               {"--train.max_steps",
                                steps,
                                "--train.global_batch_size",
                                "12",
                                "--train.micro_batch_size",
                                "12",
                                "--data.val_split_fraction",
                                "0.25",
                                "--optimizer",
                                "sgd",
                                "--optimizer.lr",
                                "0.1",
                                "--train.epochs",
                                "100",
                                "--train.lr_schedule",
                                "constant",
                                "--train.lr_warmup_steps",
                                "0",
                                "--lora_dropout",
                                "0",
                                "--eval.initial_validation",
                                "true"});
    all.front() = "finetune_lora";
    all[1] = model;
    all.erase(all.begin() + 2, all.begin() + 4);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  json train(const Words& words, const std::string& out) const {
    const Result result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    const json record = read_run(folder_ / out);
    EXPECT_EQ(record["memory"]["predicted"]["peak_allocated"],
              record["memory"]["measured"]["peak_allocated"]);
    return record;
  }

  TempFolder folder_;
  fs::path rows_ = write_rows(folder_ / "rows.jsonl", 16);
};

TEST_F(TrainedOn, TwoRunsAreOne) {
  for (const Words& kind : {Words{}, Words{"--lora_use_dora", "true"},
                            Words{"--lora_r", "4", "--lora_alpha", "7", "--lora_use_rslora", "true",
                                  "--lora_target_modules", "all-linear"}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(kind, " ")));
    const std::string name = kind.empty() ? "plain" : kind.front().substr(2);
    const fs::path base = folder_ / "base/final";
    const json whole = train(words(base, name + "-whole", "8", kind), name + "-whole");
    const json first = train(words(base, name + "-first", "4", kind), name + "-first");
    // Its rank and layers are those of the file, whatever is usual.
    const json second = train(words(folder_ / (name + "-first") / "final", name + "-second", "4"),
                              name + "-second");
    EXPECT_NEAR(second["validation"].front()["loss"], first["validation"].back()["loss"], 1e-6);
    EXPECT_NEAR(second["validation"].back()["loss"], whole["validation"].back()["loss"], 1e-5);
    EXPECT_LT(whole["validation"].back()["loss"], first["validation"].back()["loss"]);
    EXPECT_EQ(second["model"]["trainable"], whole["model"]["trainable"]);
    json config = json::parse(read_file(folder_ / (name + "-whole") / "final/adapter_config.json"));
    EXPECT_EQ(json::parse(read_file(folder_ / (name + "-second") / "final/adapter_config.json")),
              config);
  }
}

TEST_F(TrainedOn, AsksInTheWordsThatItWasTrainedWith) {
  train(words(folder_ / "base/final", "first", "1"), "first");  // plain
  Words again = words(folder_ / "first/final", "second", "1");
  const auto style = std::ranges::find(again, "--data.prompt_style");
  ASSERT_NE(style, again.end());
  again.erase(style, style + 2);
  expect_part(run(again), 0, "prompt style plain");
  // Planned as what it is, without a word that says so.
  const Result planned = run({"plan", folder_ / "first/final", "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.output;
  const json plan = json::parse(planned.output.substr(planned.output.find('{')));
  EXPECT_LT(plan["model"]["trained"], plan["model"]["parameters"]);
}

TEST_F(TrainedOn, RefusesWhatCannotBe) {
  const fs::path base = folder_ / "base/final", adapter = folder_ / "first/final";
  train(words(base, "first", "1"), "first");
  expect_part(run(words(adapter, "out", "1", {"--lora_r", "4"})), 2,
              "was trained with 8, and trains on with it");
  expect_part(run(words(adapter, "out", "1", {"--lora_mlp", "true"})), 2,
              "trains on as it is; leave lora_query to lora_head and lora_target_modules out");
  expect_part(run(words(adapter, "first", "1")), 2, "choose another --out_dir");
  expect_part(run(words(base, "out", "1", {"--adapter", folder_ / "nowhere"})), 2,
              "there is no such folder");
  expect_part(run(words(base, "out", "1", {"--adapter", base})), 2,
              "no adapter of PEFT's form is in it");
  Words all = finetune_words(rows_, folder_ / "out", {});
  all[1] = adapter;
  all.erase(all.begin() + 2, all.begin() + 4);
  expect_part(run(all), 2, "is an adapter, which snug finetune trains on");
}

}  // namespace keep_best_test

}  // namespace
}  // namespace snug::tests
