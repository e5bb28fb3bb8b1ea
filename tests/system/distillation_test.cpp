// Learning from a teacher as a user does: the teacher's words are written once, a student learns
// them; what is measured and left behind, again after a stop, and what is refused.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "system/program.h"

namespace snug::tests {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

class Distillation : public ::testing::Test {
 protected:
  void SetUp() override {
    // The student and its teacher start from other random weights.
    ASSERT_EQ(
        run(finetune_words(rows_, folder_ / "before", {"--train.max_steps", "1", "--seed", "5"}))
            .exit_code,
        0);
    ASSERT_EQ(run(finetune_words(rows_, folder_ / "taught", {"--train.epochs", "6", "--seed", "9"}))
                  .exit_code,
              0);
  }

  Words save_words(const fs::path& file, const Words& more = {}) const {
    Words words{"evaluate", folder_ / "taught/final", "--data", rows_,    "--precision",
                "32-true",  "--save_top_k",           "16",     "--json", "--teacher_file",
                file};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  fs::path saved(const Words& more = {}) const {
    const fs::path file = folder_ / "teacher.safetensors";
    fs::remove(file);
    const Result result = run(save_words(file, more));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return file;
  }

  Words words(const std::string& name, const fs::path& teacher, const Words& more = {}) const {
    Words all{"finetune_full",
              folder_ / "before/final",
              "--data",
              rows_,
              "--out_dir",
              folder_ / name,
              "--precision",
              "32-true",
              "--objective",
              "distill",
              "--objective.teacher",
              teacher,
              "--objective.top_k",
              "16",
              "--train.global_batch_size",
              "4",
              "--train.micro_batch_size",
              "2",
              "--train.lr_warmup_steps",
              "0",
              "--train.log_interval",
              "1",
              "--eval.num_samples",
              "0",
              "--data.prompt_style",
              "plain",
              "--num_threads",
              "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  json train(const Words& all) const {
    const Result result = run(all);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return read_run(fs::path(all[5]));
  }

  const TempFolder folder_;
  const fs::path rows_ = write_rows(folder_ / "rows.jsonl", 40);
};

void expect_planned(const json& record) {
  EXPECT_EQ(record["memory"]["measured"]["peak_allocated"],
            record["memory"]["predicted"]["peak_allocated"]);
}

TEST_F(Distillation, IsLearntMeasuredAndPlanned) {
  const json record = train(words(
      "out", saved(),
      {"--train.epochs", "4", "--data.val_split_fraction", "0.2", "--optimizer.lr", "0.003"}));
  const json &first = record["steps"].front(), &last = record["steps"].back();
  EXPECT_GT(first["loss"], 0.05);
  EXPECT_LT(last["loss"].get<double>(), 0.5 * first["loss"].get<double>());
  EXPECT_LT(last["sft_loss"], first["sft_loss"]);
  EXPECT_TRUE(record["validation"].back().contains("sft_loss"));
  expect_planned(record);
  EXPECT_NE(read_file(folder_ / "out/metrics.csv").find(",sft_loss"), std::string::npos);
  EXPECT_NE(read_file(folder_ / "out/report.html").find("Loss of the answers"), std::string::npos);
  // Held-out rows' loss comes nearer to the teacher's.
  const Words held_out = {"--data.val_split_fraction", "0.2"};
  const auto loss = [&](const char* model) {
    return evaluated(folder_ / model / "final", rows_, held_out)["loss"].get<double>();
  };
  EXPECT_LT(loss("out"), loss("before"));
}

TEST_F(Distillation, FromItselfThereIsNothingToLearn) {
  const fs::path file = folder_ / "own.safetensors";
  Words own = save_words(file);
  own[1] = folder_ / "before/final";
  ASSERT_EQ(run(own).exit_code, 0);
  for (const char* beta : {"0", "0.5", "1"}) {
    const json record = train(words(std::string("beta-") + beta, file,
                                    {"--train.max_steps", "1", "--objective.beta", beta}));
    EXPECT_NEAR(record["steps"][0]["loss"].get<double>(), 0, 1e-6) << beta;
    EXPECT_GT(record["steps"][0]["sft_loss"], 0.1);
  }
}

// Its own samples, so that no style or mask can differ.
TEST_F(Distillation, ATeacherIsAskedByTheRunItself) {
  const fs::path taught = folder_ / "taught/final";
  const Result planned =
      run({"plan", folder_ / "before/final", "--objective", "distill", "--objective.teacher",
           taught, "--precision", "32-true", "--device", "cpu", "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.output;
  EXPECT_EQ(
      json::parse(planned.output.substr(planned.output.find('{')))["asked"]["parameter_bytes"],
      4 * 56304);
  const json record = train(words("asked", taught, {"--train.max_steps", "3"}));
  expect_planned(record);
  const fs::path words_of_it = folder_ / "asked/teacher.safetensors";
  ASSERT_TRUE(fs::exists(words_of_it));
  EXPECT_TRUE(fs::is_empty(folder_ / "asked/live") ||
              !fs::exists(folder_ / "asked/live/teacher.safetensors.new"));
  const json again = train(words("again", words_of_it, {"--train.max_steps", "3"}));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(again["steps"][i]["loss"], record["steps"][i]["loss"]);
  // A second run moves the first one's files aside, its teacher's words among them.
  const json other = train(words("asked", taught, {"--train.max_steps", "3", "--resume", "false"}));
  EXPECT_EQ(other["steps"][2]["loss"], record["steps"][2]["loss"]);
  EXPECT_TRUE(fs::exists(words_of_it));
  const json resumed = train(words(
      "resumed", taught, {"--train.max_steps", "5", "--resume", folder_ / "asked/step-000003"}));
  EXPECT_TRUE(fs::exists(folder_ / "resumed/teacher.safetensors"));
  EXPECT_EQ(resumed["steps"].size(), 5U);
  expect_part(run(words("third", folder_ / "before/final",
                        {"--train.max_steps", "5", "--resume", folder_ / "asked/step-000003"})),
              2, "with the teacher");
  // A file that the run reads stays where it is when the earlier run's are moved aside.
  train(words("asked", words_of_it, {"--train.max_steps", "2", "--resume", "false"}));
  EXPECT_TRUE(fs::exists(words_of_it));
}

TEST_F(Distillation, ATeacherThatDoesNotFitIsNamed) {
  json config = json::parse(read_file(tiny_checkpoint() + "/config.json"));
  config["intermediate_size"] = 16384;
  const std::string wide = folder_ / "wide.json";
  std::ofstream(wide) << config.dump();
  ASSERT_EQ(run(finetune_words(rows_, folder_ / "wide",
                               {"--model.config", wide, "--train.max_steps", "1"}))
                .exit_code,
            0);
  expect_part(run(words("out", folder_ / "wide/final", {"--memory_budget", "4MiB"})), 2,
              "this model does not fit while it is asked");
}

TEST_F(Distillation, GoesOnAsIfItHadNotStopped) {
  const fs::path teacher = saved();
  const json whole =
      train(words("whole", teacher, {"--train.max_steps", "4", "--train.save_interval", "2"}));
  const json again = train(words(
      "again", teacher, {"--train.max_steps", "4", "--resume", folder_ / "whole/step-000002"}));
  ASSERT_EQ(again["steps"].size(), whole["steps"].size());
  for (size_t i = 0; i < whole["steps"].size(); ++i)
    for (const char* figure : {"loss", "sft_loss"})
      EXPECT_EQ(again["steps"][i][figure], whole["steps"][i][figure]) << figure << " " << i;
  EXPECT_EQ(read_file(folder_ / "again/final/model.safetensors"),
            read_file(folder_ / "whole/final/model.safetensors"));
  // Another teacher's words are other data.
  Words other = save_words(folder_ / "other.safetensors");
  other[1] = folder_ / "before/final";
  ASSERT_EQ(run(other).exit_code, 0);
  expect_part(run(words("third", folder_ / "other.safetensors",
                        {"--train.max_steps", "4", "--resume", folder_ / "whole/step-000002"})),
              2, "other data");
}

TEST_F(Distillation, WithTechniquesIsThePlanToTheByte) {
  const fs::path teacher = saved();
  for (const Words& more : {Words{"--activation_checkpointing", "all", "--data.packing", "false"},
                            Words{"--optimizer_offload", "cpu", "--weight_streaming", "true"},
                            Words{"--optimizer_in_backward", "true", "--objective.beta", "0.5"}}) {
    Words all = more;
    all.insert(all.end(), {"--train.max_steps", "2"});
    expect_planned(train(words(more[0].substr(2), teacher, all)));
  }
  Words lora = words("lora", teacher, {"--quantize", "bnb.nf4", "--train.max_steps", "2"});
  lora[0] = "finetune_lora";
  expect_planned(train(lora));
}

// Rows are found by what they say: in another order, repeated, some left out, split otherwise.
TEST_F(Distillation, RowsMayStandInAnotherOrder) {
  const fs::path teacher = saved(), other = folder_ / "other.jsonl";
  {
    std::ifstream in(rows_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.insert(lines.begin(), line);
    lines.resize(30);
    lines.push_back(lines.front());
    std::ofstream out(other);
    for (const std::string& line : lines) out << line << "\n";
  }
  Words all = words("out", teacher, {"--train.max_steps", "2", "--seed", "3"});
  all[3] = other;
  train(all);
}

TEST_F(Distillation, TextsAreLearntInBlocksToo) {
  const fs::path texts = folder_ / "texts.jsonl";
  {
    std::ofstream out(texts);
    for (int i = 0; i < 12; ++i)
      out << json{{"text", std::string(static_cast<size_t>(20 + 11 * i), 'a' + i % 5)}}.dump()
          << "\n";
  }
  const Words data = {"--max_seq_length", "48"};
  const fs::path file = folder_ / "texts.safetensors";
  Words save = save_words(file, data);
  save[3] = texts;
  ASSERT_EQ(run(save).exit_code, 0);
  Words all = words("out", file, {"--train.max_steps", "2", "--train.max_seq_length", "48"});
  all[3] = texts;
  const json record = train(all);
  EXPECT_LE(record["memory"]["measured"]["peak_allocated"],
            record["memory"]["predicted"]["peak_allocated"]);
}

TEST_F(Distillation, WhatDoesNotFitIsRefused) {
  const fs::path teacher = saved();
  Words none = words("a", "");
  expect_part(run(none), 2, "--objective.teacher MODEL");
  expect_part(run(words("a", folder_ / "nothing.safetensors")), 2,
              "--teacher_file " + (folder_ / "nothing.safetensors").string());
  expect_part(run(words("a", teacher, {"--data.mask_prompt", "true"})), 2,
              "written with mask_prompt false, and here it is true");
  expect_part(run({"evaluate", folder_ / "taught/final", "--data", rows_, "--teacher_file", "x"}),
              2, "--save_top_k 64");
  Words more = words("a", teacher);
  more[13] = "17";
  expect_part(run(more), 2, "--objective.top_k 16");
  expect_part(run(words("a", teacher, {"--data.prompt_style", "alpaca"})), 2,
              "written with prompt_style plain, and here it is alpaca");
  Words others = words("a", teacher);
  others[3] = write_rows(folder_ / "more.jsonl", 43);
  std::ofstream(others[3], std::ios::app) << R"({"instruction":"new","output":"words"})"
                                          << "\n";
  expect_part(run(others), 2, "says nothing of 1 of 44 samples, such as row 44");
  expect_part(run(words("a", teacher, {"--objective.beta", "1.5"})), 2, "0 for the forward");
  expect_part(run(words("a", teacher, {"--train.label_smoothing", "0.1"})), 2,
              "does not go with objective distill");
  expect_part(run(finetune_words(rows_, folder_ / "a", {"--objective.teacher", teacher})), 2,
              "sft has no such argument; give --objective distill");
  expect_part(run(words("a", folder_ / "before/final/model.safetensors")), 2,
              "--save_top_k writes");
  expect_part(run(save_words(teacher)), 2, "exists already");
  expect_part(run(save_words(folder_ / "b", {"--max_iters", "1"})), 2, "--data.max_samples");
  expect_part(run(save_words(folder_ / "b", {"--save_top_k", "100000"})), 2, "give at most");
  EXPECT_FALSE(fs::exists(folder_ / "b"));
  // Without a teacher there is a plan all the same: it is as large as any.
  const Result planned =
      run({"plan", "--model.config", tiny_checkpoint() + "/config.json", "--objective", "distill",
           "--max_seq_length", "64", "--device", "cpu"});
  EXPECT_EQ(planned.exit_code, 0) << planned.output;
}

TEST_F(Distillation, ADamagedFileIsRefused) {
  const fs::path teacher = saved();
  const std::string bytes = read_file(teacher);
  const auto refused = [&](std::string damaged, const std::string& why) {
    const fs::path file = folder_ / "damaged.safetensors";
    std::ofstream(file, std::ios::binary) << damaged;
    expect_part(run(words("a", file)), 2, why);
  };
  refused(bytes.substr(0, bytes.size() / 2), "damaged.safetensors");
  // Its second half has ids and log-probabilities.
  std::string ones = bytes;
  for (size_t i = ones.size() / 2 / 4 * 4; i + 4 <= ones.size(); i += 4)
    ones.replace(i, 4, std::string("\0\0\x80\x3f", 4));
  refused(ones, "probabilit");
}

}  // namespace
}  // namespace snug::tests
