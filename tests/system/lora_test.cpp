// Adapters through the program: trained, written as a PEFT directory, resumed, evaluated.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "system/program.h"

namespace snug::tests {
namespace {

using Words = std::vector<std::string>;
using nlohmann::json;

// The same run with another command, from random weights.
Words lora_words(const fs::path& rows, const fs::path& out_dir, const Words& more) {
  Words words = finetune_words(rows, out_dir, more);
  words.front() = "finetune_lora";
  return words;
}

// A model with weights, which have seen one step.
fs::path make_base(const fs::path& rows, const fs::path& folder) {
  const Result result = run(finetune_words(rows, folder, {"--train.max_steps", "1"}));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  return folder / "final";
}

struct Kind {
  const char* name;
  Words options;
};

class Lora : public ::testing::TestWithParam<Kind> {};

// What final/ holds, laid over the base again, is what was trained: also where training changed the
// base (PiSSA).
TEST_P(Lora, EvaluatesAsItWasTrained) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 160);
  const fs::path base = make_base(rows, folder / "base");
  Words words = lora_words(rows, folder / "out", GetParam().options);
  words[1] = base;
  words.erase(words.begin() + 2, words.begin() + 4);  // --model.config
  words.insert(words.end(), {"--data.val_split_fraction", "0.25", "--eval.num_samples", "1",
                             "--optimizer.lr", "0.01"});
  const Result trained = run(words);
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const json record = read_run(folder / "out");
  EXPECT_LT(record["model"]["trainable"], record["model"]["parameters"]);
  EXPECT_LT(losses(record).back(), losses(record).front());
  EXPECT_EQ(record["memory"]["predicted"]["peak_allocated"],
            record["memory"]["measured"]["peak_allocated"]);
  ASSERT_EQ(record["samples"].size(), 1U);
  for (const char* part : {"question", "expected", "before", "after"})
    EXPECT_TRUE(record["samples"][0][part].is_string()) << part;
  EXPECT_NE(read_file(folder / "out/report.html").find("Held-out samples"), std::string::npos);
  EXPECT_TRUE(fs::exists(folder / "out/final/adapter_model.safetensors"));
  EXPECT_FALSE(fs::exists(folder / "out/final/model.safetensors"));
  const std::string name = GetParam().name;
  if (name == "QuantizedInt8Pissa") return;  // what was quantized is not the base as it is on disk
  Words beside{"--adapter", folder / "out/final"};
  if (name == "QuantizedNf4") beside.insert(beside.end(), {"--quantize", "bnb.nf4-dq"});
  const json figures = evaluated(base, rows, beside);
  const double expected = record["validation"].back()["loss"];
  EXPECT_NEAR(figures["loss"].get<double>(), expected, 2e-5 * expected);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Lora,
    ::testing::Values(Kind{"Default", {}}, Kind{"Gaussian", {"--lora_init_weights", "gaussian"}},
                      Kind{"Everything",
                           {"--lora_key", "true", "--lora_projection", "true", "--lora_mlp", "true",
                            "--lora_head", "true"}},
                      Kind{"Dora", {"--lora_use_dora", "--lora_target_modules", "all-linear"}},
                      Kind{"PissaRankStabilized",
                           {"--lora_init_weights", "pissa", "--lora_use_rslora", "--lora_r", "4"}},
                      Kind{"QuantizedNf4", {"--quantize", "bnb.nf4-dq"}},
                      Kind{"QuantizedInt8Pissa",
                           {"--quantize", "bnb.int8", "--lora_init_weights", "pissa"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(LoraResume, GoesOnAsIfNeverStopped) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 160);
  for (const Words& kind : {Words{}, Words{"--lora_init_weights", "pissa"},
                            Words{"--quantize", "bnb.nf4", "--lora_use_dora"}}) {
    Words more = kind;
    more.insert(more.end(), {"--train.save_interval", "3", "--train.max_steps", "8"});
    const fs::path whole = folder / "whole", parts = folder / "parts";
    fs::remove_all(whole);
    fs::remove_all(parts);
    ASSERT_EQ(run(lora_words(rows, whole, more)).exit_code, 0);
    // A run that saved at steps 3 and 6 goes on from the earlier one.
    Words again = more;
    again.insert(again.end(), {"--resume", (whole / "step-000003").string()});
    const Result resumed = run(lora_words(rows, parts, again));
    ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_EQ(losses(read_run(parts)), losses(read_run(whole)));
    EXPECT_EQ(read_file(parts / "final/adapter_model.safetensors"),
              read_file(whole / "final/adapter_model.safetensors"));
    EXPECT_LT(fs::file_size(whole / "step-000003/model.safetensors"), 100'000U);
  }
}

// The same shapes, but another scale, start, base or optimizer: refused before anything is trained.
TEST(LoraResume, RefusesAdaptersThatWouldMeanSomethingElse) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 160);
  const Words few{"--train.save_interval", "2", "--train.max_steps", "2"};
  ASSERT_EQ(run(lora_words(rows, folder / "first", few)).exit_code, 0);
  for (const Words& other : {Words{"--lora_alpha", "32"}, Words{"--lora_use_rslora", "true"},
                             Words{"--lora_use_dora", "true"},
                             Words{"--lora_init_weights", "pissa"}, Words{"--lora_value", "false"},
                             Words{"--quantize", "bnb.nf4"}, Words{"--optimizer", "lion"}}) {
    Words more = other;
    more.insert(more.end(),
                {"--train.max_steps", "3", "--resume", (folder / "first/step-000002").string()});
    const Result resumed = run(lora_words(rows, folder / "second", more));
    EXPECT_EQ(resumed.exit_code, 2) << other.front() << resumed.output;
    EXPECT_NE(resumed.output.find("was written with " + other.front().substr(2)), std::string::npos)
        << resumed.output;
  }
}

// The head's output is the largest there is: nothing of its size may be made that is not planned.
TEST(LoraMemory, DoraOfTheHeadIsPlannedToTheByte) {
  const TempFolder folder;
  std::string long_rows;
  for (int i = 0; i < 40; ++i)
    long_rows += fmt::format("{{\"instruction\": \"{0}\", \"output\": \"{0}\"}}\n",
                             std::string(100, static_cast<char>('a' + i % 26)));
  const fs::path rows = folder / "rows.jsonl";
  write_file_atomically(rows, long_rows);
  const Result result = run(lora_words(rows, folder / "out",
                                       {"--lora_use_dora", "--lora_target_modules", "lm_head",
                                        "--precision", "bf16-true", "--train.max_steps", "2"}));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const json memory = read_run(folder / "out")["memory"];
  EXPECT_EQ(memory["predicted"]["peak_allocated"], memory["measured"]["peak_allocated"]);
}

TEST(LoraErrors, PissaOfATiedHeadIsRefusedBeforeAnythingIsRead) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 40);
  const Result result = run(
      lora_words(rows, folder / "out", {"--lora_head", "true", "--lora_init_weights", "pissa"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.output.find("leave the head out"), std::string::npos) << result.output;
  EXPECT_EQ(result.output.find("Plan "), std::string::npos) << result.output;
}

TEST(LoraErrors, SayWhichLayersThereAre) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 40);
  const Result result =
      run(lora_words(rows, folder / "out", {"--lora_target_modules", "q_proj,query"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.output.find("query names no layer"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("down_proj"), std::string::npos) << result.output;
  const Result pattern =
      run(lora_words(rows, folder / "out", {"--lora_target_modules", ".*(q_proj"}));
  EXPECT_EQ(pattern.exit_code, 2);
  EXPECT_NE(pattern.output.find("lora_target_modules"), std::string::npos) << pattern.output;
  const Result none =
      run(lora_words(rows, folder / "out", {"--lora_query", "false", "--lora_value", "false"}));
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.output.find("no layer gets an adapter"), std::string::npos) << none.output;
  Words full = finetune_words(rows, folder / "out", {"--lora_r", "4"});
  EXPECT_EQ(run(full).exit_code, 2);
}

}  // namespace
}  // namespace snug::tests
