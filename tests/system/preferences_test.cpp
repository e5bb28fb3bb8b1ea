// Preferences as a user trains them: what is measured and left behind, again after a stop, and what
// is refused.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "files/weights/safetensors/safetensors.h"
#include "system/program.h"

namespace snug::tests {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

// Rows that a small model can learn: the better answer repeats the question's digit.
fs::path write_pairs(const fs::path& path, int count) {
  std::ofstream out(path);
  for (int i = 0; i < count; ++i)
    out << json{{"prompt", fmt::format("say {}: ", i % 7)},
                {"chosen",
                 std::string(static_cast<size_t>(2 + i % 5), static_cast<char>('0' + i % 7))},
                {"rejected", std::string(static_cast<size_t>(1 + i % 3), 'x')}}
               .dump()
        << "\n";
  return path;
}

class Preferences : public ::testing::Test {
 protected:
  Words words(const std::string& name, const Words& more = {}) const {
    Words all{"--objective", "dpo", "--train.log_interval", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return finetune_words(pairs_, folder_ / name, all);
  }
  json train(const std::string& name, const Words& more = {}) const {
    const Result result = run(words(name, more));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return read_run(folder_ / name);
  }

  const TempFolder folder_;
  const fs::path pairs_ = write_pairs(folder_ / "pairs.jsonl", 40);
};

TEST_F(Preferences, AreLearntAndMeasuredAndPlanned) {
  for (const char* objective : {"dpo", "orpo"}) {
    SCOPED_TRACE(objective);
    const json record = train(objective, {"--objective", objective, "--train.epochs", "3",
                                          "--data.val_split_fraction", "0.2"});
    const json &first = record["steps"].front(), &last = record["steps"].back();
    const bool has_reference = std::string(objective) == "dpo";
    // Beside the model before training nothing has moved yet.
    if (has_reference) {
      EXPECT_NEAR(first["loss"].get<double>(), std::log(2.0), 1e-6);
      EXPECT_EQ(first["rewards_margin"], 0);
    }
    EXPECT_LT(last["loss"], first["loss"]);
    EXPECT_GT(last["rewards_margin"], first["rewards_margin"]);
    EXPECT_GT(last["rewards_accuracy"], 0.9);
    EXPECT_GT(record["validation"].back()["rewards_accuracy"], 0.9);
    EXPECT_EQ(record["memory"]["measured"]["peak_allocated"],
              record["memory"]["predicted"]["peak_allocated"]);
    EXPECT_EQ(fs::exists(folder_ / objective / "reference.safetensors"), has_reference);
    const std::string csv = read_file(folder_ / objective / "metrics.csv");
    EXPECT_NE(csv.find(",val_loss,rewards_chosen,rewards_rejected,rewards_accuracy,rewards_margin,"
                       "val_rewards_chosen"),
              csv.npos);
    // A step's row and a validation's have a cell for each column.
    std::istringstream lines(csv);
    for (std::string line; std::getline(lines, line);)
      EXPECT_EQ(std::ranges::count(line, ','), 18) << line;
  }
}

// As training validates held-out pairs: of a model by the answers alone, of an adapter beside its
// base.
TEST_F(Preferences, AreEvaluatedAsTheyAreValidated) {
  const Words held_out{"--data.val_split_fraction", "0.2"};
  const auto evaluate = [&](const fs::path& model, const Words& more) {
    Words words{"evaluate",
                model,
                "--data.json_path",
                pairs_,
                "--data.prompt_style",
                "plain",
                "--split",
                "val",
                "--precision",
                "32-true",
                "--json"};
    words.insert(words.end(), held_out.begin(), held_out.end());
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const auto expect_as_validated = [&](const json& record, const Result& result) {
    ASSERT_EQ(result.exit_code, 0) << result.output;
    const json found = json::parse(result.output.substr(result.output.find('{')));
    const json& wanted = record["validation"].back();
    EXPECT_NEAR(found["loss"], wanted["loss"], 1e-5);
    EXPECT_NEAR(found["accuracy"], wanted["rewards_accuracy"], 1e-9);
    for (const char* figure : {"rewards_chosen", "rewards_rejected", "rewards_margin"})
      EXPECT_NEAR(found[figure], wanted[figure], 1e-5) << figure;
    EXPECT_EQ(found["samples"], 8);
  };
  Words learns{"--objective", "orpo", "--objective.beta", "0.3"};
  learns.insert(learns.end(), held_out.begin(), held_out.end());
  const json whole = train("whole", learns);
  const fs::path model = folder_ / "whole/final";
  expect_as_validated(whole, evaluate(model, {"--objective", "orpo", "--objective.beta", "0.3"}));
  expect_part(evaluate(model, {"--objective", "dpo"}), 2, "does not say which that is");
  expect_part(evaluate(model, {"--objective", "kto"}), 2, "pairs are evaluated by dpo");
  Words adapts = words("adapter", held_out);
  adapts.front() = "finetune_lora";
  adapts[1] = model;
  adapts.erase(adapts.begin() + 2, adapts.begin() + 4);
  ASSERT_EQ(run(adapts).exit_code, 0);
  const fs::path scores = folder_ / "scores.jsonl";
  expect_as_validated(
      read_run(folder_ / "adapter"),
      evaluate(folder_ / "adapter/final", {"--objective", "dpo", "--scores_file", scores}));
  std::ifstream lines(scores);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const json row = json::parse(line);
    for (const char* key : {"row", "chosen", "rejected", "reference_chosen", "reference_rejected"})
      EXPECT_TRUE(row[key].is_number()) << line;
  }
  EXPECT_EQ(count, 8);
}

TEST_F(Preferences, GoOnBesideTheModelBeforeTraining) {
  const json whole = train("whole", {"--train.max_steps", "4", "--train.save_interval", "2"});
  const json again =
      train("again", {"--train.max_steps", "4", "--resume", folder_ / "whole/step-000002"});
  ASSERT_EQ(again["steps"].size(), whole["steps"].size());
  for (size_t i = 0; i < whole["steps"].size(); ++i)
    for (const char* figure : {"loss", "rewards_chosen", "rewards_margin"})
      EXPECT_EQ(again["steps"][i][figure], whole["steps"][i][figure]) << figure << " " << i;
  EXPECT_EQ(read_file(folder_ / "again/final/model.safetensors"),
            read_file(folder_ / "whole/final/model.safetensors"));
  // In a folder of its own it goes on without the first one.
  fs::remove_all(folder_ / "whole");
  EXPECT_EQ(train("again", {"--train.max_steps", "5", "--resume", "auto"})["steps"].size(), 5U);
  // And a run that begins anew moves all of an earlier one.
  train("again", {"--train.max_steps", "1"});
  EXPECT_TRUE(fs::exists(folder_ / "again/earlier/reference.safetensors"));
  EXPECT_TRUE(fs::exists(folder_ / "again/reference.safetensors"));
}

// What the run compares with is what the other model says when it is evaluated, at one process and
// at two.
TEST_F(Preferences, MayBeComparedWithAnotherModel) {
  train("other", {"--objective", "orpo", "--seed", "5"});
  const fs::path other = folder_ / "other/final", scores = folder_ / "scores.jsonl";
  const Result evaluated = run({"evaluate", other, "--data", pairs_, "--objective", "orpo",
                                "--precision", "32-true", "--scores_file", scores});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.output;
  std::vector<float> expected;
  std::ifstream in(scores);
  for (std::string line; std::getline(in, line);) {
    const json row = json::parse(line);
    expected.push_back(row["chosen"]);
    expected.push_back(row["rejected"]);
  }
  std::ranges::sort(expected);
  Words more{"--objective.reference",     other, "--train.max_steps", "2",
             "--data.val_split_fraction", "0"};
  const json record = train("one", more);
  EXPECT_NE(record["steps"][0]["rewards_margin"], 0);
  EXPECT_EQ(record["memory"]["measured"]["peak_allocated"],
            record["memory"]["predicted"]["peak_allocated"]);
  more.insert(more.end(), {"--devices", "2"});
  const json two = train("two", more);
  EXPECT_NEAR(two["steps"][1]["loss"], record["steps"][1]["loss"].get<double>(), 1e-5);
  for (const char* name : {"one", "two"}) {
    const auto file = files::open_safetensors(folder_ / name / "reference.safetensors");
    std::vector<float> found(expected.size());
    ASSERT_EQ(file->find("train")->shape, std::vector<int64_t>{std::ssize(found)});
    file->read(*file->find("train"), files::DType::F32, found.data());
    std::ranges::sort(found);
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-4) << i;
  }
  // Beside it a model is evaluated as it was validated.
  more = {"--objective.reference", other, "--data.val_split_fraction", "0.25"};
  const json held_out = train("held_out", more)["validation"].back();
  const json found = snug::tests::evaluated(folder_ / "held_out/final", pairs_,
                                            {"--objective", "dpo", "--objective.reference", other});
  EXPECT_NEAR(found["rewards_margin"], held_out["rewards_margin"].get<double>(), 1e-4);
  EXPECT_NEAR(found["loss"], held_out["loss"].get<double>(), 1e-4);
  expect_part(run(words("c", {"--objective", "orpo", "--objective.reference", other})), 2,
              "orpo has no such argument");
  expect_part(run(words("c", {"--objective.reference", "nothing"})), 2, "nothing");
}

TEST_F(Preferences, DoNotGoOnWithoutWhatWasComputedBefore) {
  train("out", {"--train.max_steps", "4", "--train.save_interval", "2"});
  const Words again =
      words("again", {"--train.max_steps", "4", "--resume", folder_ / "out/step-000002"});
  const std::string bytes = read_file(folder_ / "out/reference.safetensors");
  std::ofstream(folder_ / "out/reference.safetensors") << bytes.substr(0, bytes.size() - 8);
  EXPECT_EQ(run(again).exit_code, 2);
  // Another objective would go on with this one's states.
  expect_part(
      run(words("again", {"--objective", "simpo", "--resume", folder_ / "out/step-000002"})), 2,
      "objective = \"dpo\"");
  fs::remove(folder_ / "out/reference.safetensors");
  expect_part(run(again), 2, "reference.safetensors is missing");
}

TEST_F(Preferences, WithAdaptersAndEveryOffloadingAreThePlanToTheByte) {
  for (const Words& more :
       {Words{"--full", "false", "--quantize", "bnb.nf4"},
        Words{"--full", "false", "--activation_checkpointing", "all", "--data.packing", "false"},
        Words{"--optimizer_offload", "cpu", "--weight_streaming", "true"},
        Words{"--optimizer_in_backward", "true", "--train.micro_batch_size", "8"}}) {
    Words all = words(fmt::format("{}", more[1] + more[2]), {"--train.max_steps", "2"});
    if (more[0] == "--full") {
      all[0] = "finetune_lora";
      all.insert(all.end(), more.begin() + 2, more.end());
    } else {
      all.insert(all.end(), more.begin(), more.end());
    }
    const Result result = run(all);
    ASSERT_EQ(result.exit_code, 0) << result.output;
    const json record = read_run(folder_ / (more[1] + more[2]));
    EXPECT_EQ(record["memory"]["measured"]["peak_allocated"],
              record["memory"]["predicted"]["peak_allocated"])
        << more[2];
  }
}

TEST_F(Preferences, ArePlannedWithoutRows) {
  const Result result = run({"plan", "--model.config", tiny_checkpoint() + "/config.json",
                             "--objective", "dpo", "--max_seq_length", "64", "--device", "cpu"});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("2 x 64 tokens"), result.output.npos) << result.output;
  const json ran = train("synthetic", {"--data", "Synthetic", "--data.json_path", "",
                                       "--train.max_steps", "2", "--train.max_seq_length", "64"});
  EXPECT_EQ(ran["memory"]["measured"]["peak_allocated"],
            ran["memory"]["predicted"]["peak_allocated"]);
}

TEST_F(Preferences, RowsAndOptionsThatDoNotFitAreRefused) {
  const fs::path answers = write_rows(folder_ / "answers.jsonl", 8);
  expect_part(run(finetune_words(answers, folder_ / "a", {"--objective", "dpo"})), 2,
              "no \"rejected\"");
  expect_part(run(finetune_words(pairs_, folder_ / "b")), 2, "--objective dpo");
  expect_part(run(words("c", {"--objective.gamma", "1"})), 2, "dpo has no such argument");
  expect_part(run(words("d", {"--train.label_smoothing", "0.1"})), 2, "objective.label_smoothing");
  expect_part(run(words("e", {"--objective", "dpo2"})), 2, "dpo");
  expect_part(run(words("g", {"--data.include_multiturn_conversations", "true"})), 2,
              "one answer each");
  expect_part(run({"finetune_lora", "--model.config",
                   std::string(SNUG_SOURCE_DIR) + "/recipes/models/tiny-blip2.json", "--data",
                   "Synthetic", "--objective", "dpo", "--out_dir", folder_ / "f"}),
              2, "looks at pictures");
  expect_part(run({"plan", "--model.config", tiny_checkpoint() + "/config.json", "--objective",
                   "dpo", "--like", "litgpt", "--max_seq_length", "64"}),
              2, "not objective dpo");
}

TEST_F(Preferences, AreShownWithBothAnswers) {
  const Result result = run({"data", "show", pairs_, "--model", tiny_checkpoint(), "--objective",
                             "dpo", "--json", "--num_samples", "1"});
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const json shown = json::parse(result.output)["shown"][0];
  EXPECT_EQ(shown["parts"].back()["learnt"], true);
  EXPECT_NE(shown["rejected"]["parts"].back()["text"].get<std::string>().find("x"),
            std::string::npos);
  EXPECT_EQ(shown["rejected"]["parts"][0], shown["parts"][0]);
  EXPECT_GT(shown["shared_tokens"], 0);
  const Result text =
      run({"data", "show", pairs_, "--model", tiny_checkpoint(), "--objective", "dpo"});
  EXPECT_NE(text.output.find("Rejected: "), text.output.npos) << text.output;
  // A model that is a folder with a GGUF file.
  train("run", {"--train.max_steps", "1"});
  fs::create_directory(folder_ / "gguf");
  EXPECT_EQ(run({"convert", folder_ / "run/final", folder_ / "gguf/model.gguf"}).exit_code, 0);
  expect_part(run({"data", "show", pairs_, "--model", folder_ / "gguf", "--objective", "dpo"}), 0,
              "Rejected: ");
}

}  // namespace
}  // namespace snug::tests
