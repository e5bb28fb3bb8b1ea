// Training on several sources at once.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "system/program.h"

namespace snug::tests {
namespace {

namespace mix_test {

using nlohmann::json;
using Words = std::vector<std::string>;

// 24 rows of one kind, of which a fourth is held out, twice in an epoch; 20 of another, of which an
// epoch has half.
struct Mix {
  TempFolder folder;
  fs::path letters = write_rows(folder / "letters.jsonl", 24);
  fs::path numbers = write_numbers(folder / "numbers.jsonl", 20);
  fs::path recipe = write_recipe();

  static fs::path write_numbers(const fs::path& path, int count) {
    std::ofstream out(path);
    for (int i = 0; i < count; ++i)
      out << json{{"prompt", fmt::format("count to {}: ", i)}, {"completion", fmt::format("{}", i)}}
                 .dump()
          << "\n";
    return path;
  }
  fs::path write_recipe() const {
    std::ofstream(folder / "recipe.yaml") << fmt::format(
        "data:\n  sources:\n    - file: {}\n      weight: 2\n      prompt_style: plain\n"
        "      val_split_fraction: 0.25\n    - file: {}\n      weight: 0.5\n"
        "      mask_prompt: true\n",
        letters.string(), numbers.string());
    return folder / "recipe.yaml";
  }
  Words words(const fs::path& out, const Words& more = {}) const {
    Words all{"finetune_full",
              tiny_checkpoint(),
              "--config",
              recipe.string(),
              "--model.config",
              tiny_checkpoint() + "/config.json",
              "--out_dir",
              out.string(),
              "--precision",
              "32-true",
              "--train.global_batch_size",
              "4",
              "--train.micro_batch_size",
              "2",
              "--train.epochs",
              "2",
              "--train.lr_warmup_steps",
              "2",
              "--eval.num_samples",
              "0",
              "--eval.max_iters",
              "1000",
              "--optimizer.lr",
              "0.003",
              "--train.lr_schedule",
              "constant"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

json train(const Words& words, const fs::path& out) {
  const Result result = run(words);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  return result.exit_code == 0 ? read_run(out) : json();
}

TEST(Mix, EachSourceIsCountedAndValidatedByItself) {
  const Mix mix;
  const Result result = run(mix.words(mix.folder / "out"));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const json record = read_run(mix.folder / "out");
  const json& sources = record["sources"];
  ASSERT_EQ(sources.size(), 2U);
  EXPECT_EQ(sources[0]["name"], "letters.jsonl");
  EXPECT_EQ(sources[0]["samples"], 18);
  EXPECT_EQ(sources[0]["held_out"], 6);
  EXPECT_EQ(sources[0]["per_epoch"], 36);
  EXPECT_EQ(sources[0]["read"], 72);
  EXPECT_EQ(sources[1]["samples"], 19) << "a twentieth is held out";
  EXPECT_EQ(sources[1]["per_epoch"], 10);
  EXPECT_EQ(sources[1]["read"], 20);
  EXPECT_EQ(record["steps"].size(), 23U);  // 2 · 46 samples, 4 a step
  EXPECT_EQ(record["memory"]["predicted"]["peak_allocated"],
            record["memory"]["measured"]["peak_allocated"]);
  // Each loss is that of the file alone.
  const json& last = record["validation"].back();
  const double letters =
      evaluated(mix.folder / "out/final", mix.letters,
                {"--data.prompt_style", "plain", "--data.mask_prompt", "false"})["loss"];
  EXPECT_NEAR(last["sources"]["letters.jsonl"], letters, 1e-5);
  const double numbers = evaluated(mix.folder / "out/final", mix.numbers,
                                   {"--data.val_split_fraction", "0.05", "--data.prompt_style",
                                    "plain", "--data.mask_prompt", "true"})["loss"];
  EXPECT_NEAR(last["sources"]["numbers.jsonl"], numbers, 1e-5);
  EXPECT_GT(last["loss"].get<double>(), std::min(letters, numbers));
  EXPECT_LT(last["loss"].get<double>(), std::max(letters, numbers));
  EXPECT_NE(result.output.find("2 sources: 46 training samples in an epoch"), std::string::npos)
      << result.output;
  EXPECT_NE(read_file(mix.folder / "out/report.html").find("letters.jsonl"), std::string::npos);
}

TEST(Mix, AStoppedRunGoesOnInTheMiddleOfAnEpoch) {
  const Mix mix;
  const Words saves{"--train.save_interval", "5", "--resume", "auto"};
  const auto until = [&](const fs::path& out, const char* steps) {
    Words words = mix.words(out, saves);
    words.insert(words.end(), {"--train.max_steps", steps});
    return train(words, out);
  };
  const json whole = until(mix.folder / "whole", "20");
  until(mix.folder / "parts", "15");
  const json parts = until(mix.folder / "parts", "20");
  EXPECT_EQ(losses(parts), losses(whole));
  EXPECT_EQ(parts["sources"], whole["sources"]);
  EXPECT_EQ(parts["validation"].back()["sources"], whole["validation"].back()["sources"]);
  EXPECT_TRUE(read_file(mix.folder / "parts/final/model.safetensors") ==
              read_file(mix.folder / "whole/final/model.safetensors"));
  Words other = mix.words(mix.folder / "parts", saves);
  other.insert(other.end(), {"--data", mix.letters.string(), "--train.max_steps", "24"});
  expect_part(run(other), 2, "other data");
  EXPECT_EQ(read_run(mix.folder / "parts")["sources"], whole["sources"]) << "it is as it was";
}

TEST(Mix, TwoProcessesReadAndValidateTheSame) {
  const Mix mix;
  const Words more{"--train.max_steps", "8", "--eval.interval", "4"};
  const json one = train(mix.words(mix.folder / "one", more), mix.folder / "one");
  Words words = mix.words(mix.folder / "two", more);
  words.insert(words.end(), {"--devices", "2", "--accelerator", "cpu", "--strategy", "fsdp",
                             "--num_threads", "1"});
  const json two = train(words, mix.folder / "two");
  EXPECT_EQ(two["sources"], one["sources"]);
  ASSERT_EQ(losses(two).size(), losses(one).size());
  for (size_t i = 0; i < losses(one).size(); ++i)
    EXPECT_NEAR(losses(two)[i], losses(one)[i], 1e-4) << i;
  for (const char* source : {"letters.jsonl", "numbers.jsonl"})
    EXPECT_NEAR(two["validation"].back()["sources"][source],
                one["validation"].back()["sources"][source], 1e-4);
}

TEST(Mix, APlanAndDataShowReadTheRecipe) {
  const Mix mix;
  const Result plan = run({"plan", mix.recipe.string(), "--checkpoint_dir", tiny_checkpoint(),
                           "--train.epochs", "2", "--train.global_batch_size", "4", "--json"});
  ASSERT_EQ(plan.exit_code, 0) << plan.output;
  const json planned = json::parse(plan.output.substr(plan.output.find('{')));
  EXPECT_EQ(planned["batch"]["steps"], 23);
  const Words show{"data", "show", mix.recipe.string(), "--model", tiny_checkpoint()};
  expect_part(run(show), 0, "Row 1 of letters.jsonl");
  Words as_json = show;
  as_json.emplace_back("--json");
  const json shown = json::parse(run(as_json).output);
  ASSERT_EQ(shown["sources"].size(), 2U);
  EXPECT_EQ(shown["sources"][0]["per_epoch"], 36);
  EXPECT_EQ(shown["samples"]["training"], 18 + 19) << "each sample is shown once";
  EXPECT_EQ(shown["shown"][1]["source"], "numbers.jsonl");
}

}  // namespace mix_test
}  // namespace
}  // namespace snug::tests
