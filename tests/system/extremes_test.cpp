// What a stranger may type: every number of a plan at its upper bound, every text made very long,
// recipes that are nested, repeated or endless. Each ends soon, in little memory, and with an exit
// code that is its own.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <random>

#include "base/bytes.h"
#include "base/text.h"
#include "recipe/options/command_table.h"
#include "support/drawn_cases.h"
#include "system/program.h"

namespace snug::tests {
namespace {

using Words = std::vector<std::string>;

struct Outcome {
  int exit_code = 0;
  double processor_seconds = 0;
  int64_t resident_bytes = 0;
  std::string output;
};

Outcome measured(const Words& words) {
  const TempFolder folder;
  const pid_t child = start(words, folder / "log");
  int status = 0;
  rusage usage{};
  ::wait4(child, &status, 0, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return {.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
          .processor_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime),
          .resident_bytes = usage.ru_maxrss * kKiB,
          .output = read_file(folder / "log")};
}

// Programs that are watched take several times as much of both.
#ifdef __SANITIZE_ADDRESS__
constexpr int kWatched = 4;
#else
constexpr int kWatched = 1;
#endif

// Time of the processor, which other programs lengthen little: on a quiet AMD EPYC 1.5 s at most.
void expect_cheap(const Words& words, double seconds = 4) {
  std::string command;
  for (const std::string& word : words) command += " " + word.substr(0, 60);
  SCOPED_TRACE("snug" + command);
  const Outcome outcome = measured(words);
  EXPECT_TRUE(outcome.exit_code == 0 || outcome.exit_code == 2 || outcome.exit_code == 3)
      << outcome.exit_code << "\n"
      << outcome.output.substr(0, 2000);
  EXPECT_LE(outcome.processor_seconds, kWatched * seconds) << outcome.output.substr(0, 500);
  // Half of it is libtorch's, more or less by machine.
  EXPECT_LE(outcome.resident_bytes, kWatched * int64_t{450'000'000})
      << outcome.output.substr(0, 500);
  EXPECT_LT(outcome.output.size(), 200000U);  // a thousand answers
}

class Extremes : public ::testing::Test {
 protected:
  Words plan(const Words& more) const {
    Words words{"plan", tiny_checkpoint() + "/config.json"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Words plan_of(const std::string& recipe) const {
    write_file_atomically(folder_ / "recipe.yaml", recipe);
    return plan({"--config", folder_ / "recipe.yaml"});
  }
  // Plans with one option each, at the value that `choose` gives for it, if any.
  template <class Choose>
  void for_each_row(const std::string& what, const Choose& choose) const {
    recipe::ParsedCommand parsed;
    parsed.command = recipe::Command::Plan;
    std::vector<Words> plans;
    for (const recipe::Row& row : recipe::rows_of(parsed))
      if (const std::optional<std::string> value = choose(row))
        plans.push_back(plan({"--" + row.key, *value}));
    expect_all_cheap(what, plans);
  }
  static void expect_all_cheap(const std::string& what, const std::vector<Words>& commands) {
    for (const size_t i : drawn_of(commands.size(), what)) expect_cheap(commands[i]);
  }

  const TempFolder folder_;
};

TEST_F(Extremes, EveryNumberAtItsUpperBound) {
  for_each_row("upper bounds", [](const recipe::Row& row) -> std::optional<std::string> {
    if (row.max >= 1e300) return std::nullopt;
    if (std::holds_alternative<recipe::PairSlot>(row.slot)) return std::nullopt;
    if (row.max == 0x1p64) return "18446744073709551615";
    return fmt::format("{}", static_cast<int64_t>(row.max));
  });
}

// The rest of the commands that take numbers, with a model and data so small that only the numbers
// could make them slow or large.
TEST_F(Extremes, EveryCommandAtTheBoundsOfItsNumbers) {
  using recipe::Command;
  const std::string rows = write_rows(folder_ / "rows.jsonl", 20),
                    model = folder_ / "run" / "final";
  ASSERT_EQ(run(finetune_words(rows, folder_ / "run", {"--train.max_steps", "1"})).exit_code, 0);
  const Words training = {"--data", rows, "--out_dir", folder_ / "again", "--train.max_steps", "1"};
  const auto with = [](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  for (const auto& [command, words] : std::vector<std::pair<Command, Words>>{
           {Command::Generate, {"generate", model, "hello", "--max_new_tokens", "2"}},
           {Command::Evaluate, {"evaluate", model, "--data", rows}},
           {Command::Chat, {"chat", model}},
           {Command::Data, {"data", "show", rows, "--model", model}},
           {Command::FinetuneLora, with({"finetune", model}, training)}}) {
    recipe::ParsedCommand parsed;
    parsed.command = command;
    std::vector<Words> commands;
    for (const recipe::Row& row : recipe::rows_of(parsed)) {
      if (row.min <= -1e300 || row.max >= 0x1p63 ||
          std::holds_alternative<recipe::PairSlot>(row.slot))
        continue;
      for (const double bound : {row.min, row.max})
        commands.push_back(with(words, {"--" + row.key, fmt::format("{}", bound)}));
    }
    EXPECT_GT(commands.size(), 10U);
    expect_all_cheap("bounds of " + words.front(), commands);
  }
}

TEST_F(Extremes, EveryTextVeryLong) {
  for_each_row("long texts", [](const recipe::Row& row) -> std::optional<std::string> {
    const bool is_text = std::holds_alternative<std::string*>(row.slot) ||
                         std::holds_alternative<std::optional<std::string>*>(row.slot);
    return is_text ? std::optional(std::string(1 << 16, 'x')) : std::nullopt;
  });
}

TEST_F(Extremes, NumbersThatMultiply) {
  for (const Words& more :
       {Words{"--train.global_batch_size", "1048576", "--train.micro_batch_size", "1"},
        Words{"--train.global_batch_size", "1048576", "--train.micro_batch_size", "65536"},
        Words{"--train.micro_batch_size", "65536", "--train.accumulate_grad_batches", "1048576"},
        Words{"--data", "Synthetic", "--data.max_samples", "1000000000"},
        Words{"--data", "Synthetic", "--data.max_samples", "1048576"},
        Words{"--data", "Synthetic", "--train.global_batch_size", "1048576"},
        Words{"--devices", "65536", "--train.global_batch_size", "1048576"},
        Words{"--devices", "1048576", "--train.global_batch_size", "1048576"},
        Words{"--devices", "1048576", "--num_nodes", "1048576"},
        Words{"--mesh", "pp=2", "--train.global_batch_size", "65536"},
        Words{"--mesh", "pp=2", "--train.global_batch_size", "1048576"},
        Words{"--mesh", "pp=2", "--train.global_batch_size", "1048576", "--pipeline_schedule",
              "gpipe"},
        Words{"--mesh", "dp=1000000000,fsdp=1000000000,tp=1000000000"},
        Words{"--full", "false", "--lora_r", "65536"}})
    expect_cheap(plan(more));
  // Dozens of combinations.
  expect_cheap(plan({"--fit", "--train.global_batch_size", "1048576"}), /*seconds=*/10);
}

TEST_F(Extremes, ModelsOfAbsurdShapes) {
  const nlohmann::json tiny = nlohmann::json::parse(read_file(tiny_checkpoint() + "/config.json"));
  std::vector<nlohmann::json> configs;
  for (const auto& [key, value] : tiny.items()) {
    if (!value.is_number()) continue;
    for (const nlohmann::json& extreme :
         {nlohmann::json(-1), nlohmann::json(0), nlohmann::json(int64_t{1} << 31),
          nlohmann::json(INT64_MAX), nlohmann::json(1e308), nlohmann::json("many")}) {
      nlohmann::json changed = tiny;
      changed[key] = extreme;
      configs.push_back(changed);
    }
  }
  for (const size_t i : drawn_of(configs.size(), "absurd shapes")) {
    write_file_atomically(folder_ / "config.json", configs[i].dump());
    expect_cheap({"plan", folder_ / "config.json"});
  }
}

// The numbers of a config, some at a time: products of what is each allowed.
TEST_F(Extremes, ModelsWithSeveralAbsurdNumbers) {
  std::vector<nlohmann::json> configs;
  for (const auto& model : fs::directory_iterator(SNUG_SOURCE_DIR "/tests/data/parity"))
    if (fs::exists(model.path() / "config.json"))
      configs.push_back(nlohmann::json::parse(read_file(model.path() / "config.json")).flatten());
  ASSERT_GT(configs.size(), 10U);
  std::sort(configs.begin(), configs.end());
  std::mt19937 random;
  const auto pick = [&](const auto& from) { return from[random() % from.size()]; };
  const std::vector<nlohmann::json> extremes = {
      0,         1,     7,      4096, 65536, 1 << 20, 1 << 24, 1 << 30, INT32_MAX, int64_t{1} << 31,
      INT64_MAX, 1e308, -1e308, 0.5,  1e-320};
  for (const size_t round : drawn_of(40, "several absurd numbers")) {
    random.seed(static_cast<uint32_t>(round));
    nlohmann::json changed = pick(configs);
    std::vector<std::string> numbers;
    for (const auto& [path, value] : changed.items())
      if (value.is_number()) numbers.push_back(path);
    for (size_t i = 0; i < 1 + random() % 6; ++i) changed[pick(numbers)] = pick(extremes);
    write_file_atomically(folder_ / "config.json", changed.unflatten().dump());
    expect_cheap({"plan", folder_ / "config.json"});
  }
}

TEST_F(Extremes, RecipesMadeToHurt) {
  std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    laughs += fmt::format("a{}: &a{} [", i, i);
    for (int j = 0; j < 9; ++j) laughs += fmt::format("*a{}, ", i - 1);
    laughs += "]\n";
  }
  expect_cheap(plan_of(laughs));
  expect_cheap(plan_of("train: " + std::string(100000, '[')));
  expect_cheap(plan_of("train: " + std::string(100000, '{')));
  expect_cheap(plan_of(std::string(100000, '-') + "\n"));
  expect_cheap(plan_of("precision: \"" + std::string(1 << 22, 'x') + "\"\n"));
  std::string keys, lists = "lora_target_modules: [";
  for (int i = 0; i < 20000; ++i) {
    keys += fmt::format("key{}: {}\n", i, i);
    lists += fmt::format("q{}, ", i);
  }
  expect_cheap(plan_of(keys));
  expect_cheap(plan_of(lists + "]\n"));
}

}  // namespace
}  // namespace snug::tests
