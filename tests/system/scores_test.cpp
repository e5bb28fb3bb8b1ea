// Classifiers and reward models as a user trains them: what is measured and left behind, with all
// weights and with adapters, again after a stop, merged and evaluated; and what is refused.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "system/program.h"

namespace snug::tests {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

// Texts whose first letter is their label.
fs::path write_labelled_texts(const fs::path& path, int count) {
  std::ofstream out(path);
  for (int i = 0; i < count; ++i)
    out << json{{"text", std::string(static_cast<size_t>(2 + i % 5), i % 2 == 0 ? 'a' : 'x')},
                {"label", i % 2 == 0 ? "good" : "bad"}}
               .dump()
        << "\n";
  return path;
}

fs::path write_rated_pairs(const fs::path& path, int count) {
  std::ofstream out(path);
  for (int i = 0; i < count; ++i)
    out << json{{"prompt", fmt::format("say {}: ", i % 7)},
                {"chosen", std::string(static_cast<size_t>(2 + i % 5), 'a')},
                {"rejected", std::string(static_cast<size_t>(1 + i % 3), 'x')},
                {"margin", 0.25 * (i % 3)}}
               .dump()
        << "\n";
  return path;
}

class Scores : public ::testing::Test {
 protected:
  Words words(const std::string& name, const Words& more = {}, bool pairs = false) const {
    Words all{"--objective",          pairs ? "reward" : "classification",
              "--train.log_interval", "1",
              "--optimizer.lr",       "1e-2"};
    all.insert(all.end(), more.begin(), more.end());
    return finetune_words(pairs ? pairs_ : texts_, folder_ / name, all);
  }
  // The same, from a model's folder.
  static Words from(const fs::path& base, Words words) {
    words[1] = base;
    words.erase(words.begin() + 2, words.begin() + 4);
    return words;
  }
  json train(const Words& words, const std::string& name) const {
    const Result result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    const json record = read_run(folder_ / name);
    EXPECT_EQ(record["memory"]["measured"]["peak_allocated"],
              record["memory"]["predicted"]["peak_allocated"]);
    return record;
  }
  json evaluated(const Words& more) const {
    Words all{"evaluate"};
    all.insert(all.end(), more.begin(), more.end());
    all.insert(all.end(), {"--json", "--precision", "32-true"});
    const Result result = run(all);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return json::parse(result.output.substr(result.output.find('{')));
  }

  const TempFolder folder_;
  const fs::path texts_ = write_labelled_texts(folder_ / "texts.jsonl", 40);
  const fs::path pairs_ = write_rated_pairs(folder_ / "pairs.jsonl", 40);
};

TEST_F(Scores, LabelsAreLearntMeasuredPlannedAndKept) {
  const json record =
      train(words("out", {"--train.epochs", "4", "--data.val_split_fraction", "0.2"}), "out");
  EXPECT_LT(record["steps"].back()["loss"], record["steps"].front()["loss"]);
  EXPECT_GT(record["steps"].back()["accuracy"], 0.9);
  EXPECT_GT(record["validation"].back()["accuracy"], 0.9);
  const std::string csv = read_file(folder_ / "out/metrics.csv");
  EXPECT_NE(csv.find(",val_loss,accuracy,val_accuracy\n"), csv.npos) << csv.substr(0, 300);
  const json config = json::parse(read_file(folder_ / "out/final/config.json"));
  EXPECT_EQ(config["architectures"][0], "LlamaForSequenceClassification");
  EXPECT_EQ(config["id2label"], (json{{"0", "bad"}, {"1", "good"}}));
  EXPECT_EQ(config["label2id"]["good"], 1);
  EXPECT_FALSE(config["pad_token_id"].is_null());
  EXPECT_FALSE(fs::exists(folder_ / "out/final/generation_config.json"));
  const fs::path found = folder_ / "found.jsonl";
  const json result =
      evaluated({folder_ / "out/final", "--data.json_path", texts_, "--scores_file", found});
  EXPECT_GT(result["accuracy"], 0.9);
  EXPECT_EQ(result["labels"], (json{"bad", "good"}));
  std::ifstream lines(found);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const json row = json::parse(line);
    EXPECT_EQ(row["row"], count + 1);
    EXPECT_EQ(row["scores"].size(), 2U);
  }
  EXPECT_EQ(count, 40);
  // It is a base for more of the same, and for nothing else.
  const Words again = from(folder_ / "out/final", words("again", {"--train.max_steps", "2"}));
  EXPECT_LT(train(again, "again")["steps"].front()["loss"], 0.5);
  expect_part(run({"generate", folder_ / "out/final", "--prompt", "a"}), 2, "writes no text");
  expect_part(run({"convert", folder_ / "out/final", folder_ / "m.gguf"}), 2, "--to hf");
  const fs::path rows = write_rows(folder_ / "rows.jsonl", 8);
  expect_part(run(from(folder_ / "out/final", finetune_words(rows, folder_ / "other"))), 2,
              "writes no text");
}

TEST_F(Scores, WithAdaptersTheHeadIsTrainedKeptMergedAndGoesOn) {
  const fs::path rows = write_rows(folder_ / "rows.jsonl", 8);
  ASSERT_EQ(run(finetune_words(rows, folder_ / "lm")).exit_code, 0);
  const fs::path base = folder_ / "lm/final";
  Words whole =
      from(base, words("whole", {"--train.max_steps", "6", "--train.save_interval", "3"}));
  whole[0] = "finetune_lora";
  const json record = train(whole, "whole");
  const json config = json::parse(read_file(folder_ / "whole/final/adapter_config.json"));
  EXPECT_EQ(config["task_type"], "SEQ_CLS");
  EXPECT_EQ(config["modules_to_save"], json::array({"score"}));
  Words again = from(
      base, words("again", {"--train.max_steps", "6", "--resume", folder_ / "whole/step-000003"}));
  again[0] = "finetune_lora";
  EXPECT_EQ(train(again, "again")["steps"].back()["loss"], record["steps"].back()["loss"]);
  for (const char* file : {"adapter_model.safetensors", "labels.json"})
    EXPECT_EQ(read_file(folder_ / "again/final" / file), read_file(folder_ / "whole/final" / file));
  const json beside = evaluated({folder_ / "whole/final", "--data.json_path", texts_});
  ASSERT_EQ(run({"merge", folder_ / "whole/final", "--out_dir", folder_ / "merged"}).exit_code, 0);
  const json merged = evaluated({folder_ / "merged", "--data.json_path", texts_});
  EXPECT_NEAR(merged["loss"].get<double>(), beside["loss"].get<double>(), 1e-4);
  EXPECT_EQ(merged["labels"], (json{"bad", "good"}));
}

TEST_F(Scores, RewardsAreLearntAndMeasuredAndPlanned) {
  const json record = train(words("out",
                                  {"--train.epochs", "3", "--data.val_split_fraction", "0.2",
                                   "--objective.center_rewards_coefficient", "0.01"},
                                  /*pairs=*/true),
                            "out");
  const json &first = record["steps"].front(), &last = record["steps"].back();
  EXPECT_LT(last["loss"], first["loss"]);
  EXPECT_GT(last["rewards_margin"], first["rewards_margin"]);
  EXPECT_GT(record["validation"].back()["rewards_accuracy"], 0.9);
  const json result = evaluated({folder_ / "out/final", "--data.json_path", pairs_});
  EXPECT_GT(result["accuracy"], 0.9);
  EXPECT_GT(result["rewards_margin"], 0);
}

TEST_F(Scores, ArePlannedWithoutRowsAndWithEveryOffloading) {
  for (const bool pairs : {false, true}) {
    const char* objective = pairs ? "reward" : "classification";
    const Result result =
        run({"plan", "--model.config", tiny_checkpoint() + "/config.json", "--objective", objective,
             "--max_seq_length", "64", "--device", "cpu"});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    train(words("synthetic",
                {"--data", "Synthetic", "--data.json_path", "", "--train.max_steps", "2",
                 "--train.max_seq_length", "64"},
                pairs),
          "synthetic");
    train(words("offloaded",
                {"--train.max_steps", "2", "--optimizer_offload", "cpu", "--weight_streaming",
                 "true"},
                pairs),
          "offloaded");
    train(words("padded",
                {"--train.max_steps", "2", "--data.packing", "false", "--activation_checkpointing",
                 "all"},
                pairs),
          "padded");
  }
}

TEST_F(Scores, RowsAndOptionsThatDoNotFitAreRefused) {
  const auto rows = [&](const std::string& text) {
    const fs::path path = folder_ / "rows.jsonl";
    std::ofstream(path) << text;
    return path;
  };
  const Words classes{"--objective", "classification"};
  const auto refuse = [&](const std::string& text, const std::string& why) {
    expect_part(run(finetune_words(rows(text), folder_ / "r", classes)), 2, why);
  };
  refuse("{\"text\": \"a\"}\n", "rows.jsonl:1: no \"label\"");
  refuse("{\"text\": \"a\", \"label\": 0.5}\n", "rows.jsonl:1: the label 0.5");
  refuse("{\"text\": \"a\", \"label\": \"x\"}\n", "all rows have the label");
  refuse("{\"label\": 1}\n", "no text beside the label");
  const fs::path held_out = folder_ / "held_out.jsonl";
  std::ofstream(held_out) << "{\"text\": \"a\", \"label\": \"ugly\"}\n";
  expect_part(run(words("v", {"--data.val_path", held_out})), 2,
              "held_out.jsonl:1: the label \"ugly\" (column \"label\") is none of those");
  expect_part(run(finetune_words(texts_, folder_ / "s")), 2, "--objective classification");
  expect_part(run(words("m", {"--train.z_loss", "0.1"})), 2, "no token has a loss");
  expect_part(run(words("b", {"--objective.beta", "0.2"})), 2, "no such argument");
  const std::string broken = R"({"prompt": "a", "chosen": "b", "rejected": "c", "margin": "much"})";
  expect_part(run(finetune_words(rows(broken + "\n"), folder_ / "g", {"--objective", "reward"})), 2,
              "rows.jsonl:1: \"margin\" is");
}

}  // namespace
}  // namespace snug::tests
