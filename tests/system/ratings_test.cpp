// KTO as a user trains it: what is measured and left behind, again after a stop, and what is
// refused.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "system/program.h"

namespace snug::tests {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

// Rows that a small model can learn: a good answer repeats the question's digit. Three of five are
// good.
fs::path write_ratings(const fs::path& path, int count) {
  std::ofstream out(path);
  for (int i = 0; i < count; ++i) {
    const bool is_good = i % 5 > 1;
    out << json{{"prompt", fmt::format("say {}: ", i % 7)},
                {"completion", std::string(static_cast<size_t>(2 + i % 4),
                                           is_good ? static_cast<char>('0' + i % 7) : 'x')},
                {"label", is_good}}
               .dump()
        << "\n";
  }
  return path;
}

class Ratings : public ::testing::Test {
 protected:
  Words words(const std::string& name, const Words& more = {}) const {
    Words all{"--objective", "kto", "--train.log_interval", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return finetune_words(ratings_, folder_ / name, all);
  }
  json train(const std::string& name, const Words& more = {}) const {
    const Result result = run(words(name, more));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return read_run(folder_ / name);
  }

  const TempFolder folder_;
  const fs::path ratings_ = write_ratings(folder_ / "ratings.jsonl", 50);
};

TEST_F(Ratings, AreLearntAndMeasuredAndPlanned) {
  const json record = train("out", {"--train.epochs", "3", "--data.val_split_fraction", "0.2"});
  const json &first = record["steps"].front(), &last = record["steps"].back();
  // Beside the model before training nothing has moved yet: sigmoid(0).
  EXPECT_NEAR(first["loss"].get<double>(), 0.5, 1e-6);
  EXPECT_EQ(first["kl"], 0);
  EXPECT_LT(last["loss"], first["loss"]);
  EXPECT_GT(last["rewards_margin"], 0.05);
  const json& validation = record["validation"].back();
  EXPECT_GT(validation["rewards_chosen"], validation["rewards_rejected"]);
  EXPECT_TRUE(validation.contains("kl"));
  EXPECT_EQ(record["memory"]["measured"]["peak_allocated"],
            record["memory"]["predicted"]["peak_allocated"]);
  EXPECT_TRUE(fs::exists(folder_ / "out/reference.safetensors"));
  const std::string csv = read_file(folder_ / "out/metrics.csv");
  EXPECT_NE(csv.find(",val_loss,rewards_chosen,rewards_rejected,rewards_margin,kl,"
                     "val_rewards_chosen"),
            csv.npos);
  std::istringstream lines(csv);
  for (std::string line; std::getline(lines, line);)
    EXPECT_EQ(std::ranges::count(line, ','), 18) << line;
  const std::string page = read_file(folder_ / "out/report.html");
  EXPECT_NE(page.find("per answer"), page.npos);
  EXPECT_EQ(page.find("accuracy of pairs"), page.npos);
}

TEST_F(Ratings, GoOnBesideTheModelBeforeTraining) {
  const json whole = train("whole", {"--train.max_steps", "4", "--train.save_interval", "2"});
  const json again =
      train("again", {"--train.max_steps", "4", "--resume", folder_ / "whole/step-000002"});
  ASSERT_EQ(again["steps"].size(), whole["steps"].size());
  for (size_t i = 0; i < whole["steps"].size(); ++i)
    for (const char* figure : {"loss", "rewards_chosen", "kl"})
      EXPECT_EQ(again["steps"][i][figure], whole["steps"][i][figure]) << figure << " " << i;
  EXPECT_EQ(read_file(folder_ / "again/final/model.safetensors"),
            read_file(folder_ / "whole/final/model.safetensors"));
}

TEST_F(Ratings, WithTechniquesAreThePlanToTheByte) {
  for (const Words& more : {Words{"--activation_checkpointing", "all", "--data.packing", "false"},
                            Words{"--optimizer_offload", "cpu", "--weight_streaming", "true"},
                            Words{"--optimizer_in_backward", "true", "--train.max_norm", "1"}}) {
    Words all = more;
    all.insert(all.end(), {"--train.max_steps", "2"});
    const json record = train(more[0].substr(2), all);
    EXPECT_EQ(record["memory"]["measured"]["peak_allocated"],
              record["memory"]["predicted"]["peak_allocated"])
        << more[0];
  }
  Words lora = words("lora", {"--quantize", "bnb.nf4", "--train.max_steps", "2"});
  lora[0] = "finetune_lora";
  const Result result = run(lora);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const json record = read_run(folder_ / "lora");
  EXPECT_EQ(record["memory"]["measured"]["peak_allocated"],
            record["memory"]["predicted"]["peak_allocated"]);
}

// Long prompts have short answers here, and short ones long answers: the longest documents are
// those of which nothing is learnt.
TEST_F(Ratings, AnswersToOtherPromptsMayBeTheLongest) {
  const fs::path rows = folder_ / "long.jsonl";
  {
    std::ofstream out(rows);
    for (int i = 0; i < 8; ++i)
      out << json{{"prompt", std::string(i % 2 == 0 ? 150 : 5, static_cast<char>('a' + i))},
                  {"completion", std::string(i % 2 == 0 ? 3 : 120, static_cast<char>('k' + i))},
                  {"label", i % 2 == 0}}
                 .dump()
          << "\n";
  }
  for (const char* checkpointing : {"none", "all"}) {
    const Result result =
        run(finetune_words(rows, folder_ / checkpointing,
                           {"--objective", "kto", "--train.max_steps", "2", "--data.prompt_style",
                            "plain", "--train.global_batch_size", "8", "--train.micro_batch_size",
                            "8", "--activation_checkpointing", checkpointing}));
    ASSERT_EQ(result.exit_code, 0) << result.output;
    const json record = read_run(folder_ / checkpointing);
    EXPECT_EQ(record["memory"]["measured"]["peak_allocated"],
              record["memory"]["predicted"]["peak_allocated"])
        << checkpointing;
  }
}

TEST_F(Ratings, TellOfWeightsThatBalanceThem) {
  const Words all = {"--train.max_steps", "1", "--data.val_split_fraction", "0"};
  const Result result = run(words("out", all));
  EXPECT_NE(result.output.find("30 good and 20 bad answers, which weigh 1.50 to 1"),
            result.output.npos)
      << result.output;
  EXPECT_NE(result.output.find("--objective.undesirable_weight 1.50"), result.output.npos);
  Words more = all;
  more.insert(more.end(), {"--objective.undesirable_weight", "1.5"});
  const Result balanced = run(words("b", more));
  EXPECT_EQ(balanced.output.find("which weigh"), balanced.output.npos) << balanced.output;
}

TEST_F(Ratings, ArePlannedWithoutRowsAndShown) {
  const Result planned = run({"plan", "--model.config", tiny_checkpoint() + "/config.json",
                              "--objective", "kto", "--max_seq_length", "64", "--device", "cpu"});
  EXPECT_EQ(planned.exit_code, 0) << planned.output;
  const json ran = train("synthetic", {"--data", "Synthetic", "--data.json_path", "",
                                       "--train.max_steps", "2", "--train.max_seq_length", "64"});
  EXPECT_EQ(ran["memory"]["measured"]["peak_allocated"],
            ran["memory"]["predicted"]["peak_allocated"]);
  const Words show = {"data",        "show", ratings_,        "--model", tiny_checkpoint(),
                      "--objective", "kto",  "--num_samples", "3"};
  const Result text = run(show);
  EXPECT_NE(text.output.find("Row 1: bad, "), text.output.npos) << text.output;
  EXPECT_NE(text.output.find("Row 3: good, "), text.output.npos) << text.output;
  EXPECT_NE(text.output.find("30 good answers and 20 bad"), text.output.npos) << text.output;
  Words as_json = show;
  as_json.emplace_back("--json");
  const json shown = json::parse(run(as_json).output);
  EXPECT_EQ(shown["ratings"]["desirable"], 30);
  EXPECT_EQ(shown["shown"][0]["label"], false);
}

TEST_F(Ratings, RowsAndOptionsThatDoNotFitAreRefused) {
  const fs::path answers = write_rows(folder_ / "answers.jsonl", 8);
  expect_part(run(finetune_words(answers, folder_ / "a", {"--objective", "kto"})), 2,
              "no \"label\"");
  expect_part(run(finetune_words(ratings_, folder_ / "b")), 2, "--objective kto");
  expect_part(run(finetune_words(ratings_, folder_ / "c", {"--objective", "dpo"})), 2,
              "--objective kto");
  expect_part(run(words("d", {"--objective.label_smoothing", "0.1"})), 2,
              "kto has no such argument");
  expect_part(run(finetune_words(ratings_, folder_ / "e",
                                 {"--objective", "dpo", "--objective.desirable_weight", "2"})),
              2, "dpo has no such argument");
  expect_part(run(words("f", {"--data.split_turns", "true"})), 2, "the last answer of a chat");
}

}  // namespace
}  // namespace snug::tests
