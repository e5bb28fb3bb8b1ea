// The command that the demo becomes, and where its questions come from.
// SPDX-License-Identifier: Apache-2.0
#include "use/demo/demo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "recipe/parse.h"
#include "support/programs.h"
#include "support/temp_folder.h"

namespace snug::demo {
namespace {

using test::Environment;
using test::TempFolder;
using Words = std::vector<std::string>;

recipe::DemoOptions options_of(const Words& words) {
  Words all{"demo"};
  all.insert(all.end(), words.begin(), words.end());
  return recipe::parse_command_line(all).demo;
}

TEST(Demo, IsARunOfFinetune) {
  const Environment cache("SNUG_CACHE", "/cache");
  const std::string model = "/cache/models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf";
  EXPECT_EQ(finetune_words(options_of({})),
            (Words{"finetune_full", model, "--config", "recipes/demo.yaml"}));
  EXPECT_EQ(finetune_words(options_of({"--lora"})),
            (Words{"finetune_lora", model, "--config", "recipes/demo-lora.yaml"}));
  EXPECT_EQ(finetune_words(options_of({"--config=mine.yaml", "mine.gguf"})),
            (Words{"finetune_full", "mine.gguf", "--config=mine.yaml"}));
}

TEST(Demo, OfGemmaTrainsAdaptersUnlessTold) {
  const Environment cache("SNUG_CACHE", "/cache");
  const std::string model = "/cache/models/gemma-3-270m/gemma-3-270m-q4_k_m.gguf";
  const Words own = {"--data.prompt_style", "alpaca", "--out_dir", "out/demo-gemma3"};
  Words adapters = {"finetune_lora", model, "--config", "recipes/demo-lora.yaml"};
  adapters.insert(adapters.end(), own.begin(), own.end());
  Words full = {"finetune_full", model, "--config", "recipes/demo.yaml"};
  full.insert(full.end(), own.begin(), own.end());
  EXPECT_EQ(finetune_words(options_of({"--model", "gemma3"})), adapters);
  EXPECT_EQ(finetune_words(options_of({"--model=gemma3", "--lora", "false"})), full);
  EXPECT_THROW(finetune_words(options_of({"mine.gguf", "--model", "gemma3"})), UserError);
}

TEST(Demo, HandsOnWhatIsFinetunes) {
  EXPECT_EQ(finetune_words(options_of({"--train.max_steps=2", "--fit", "here", "--optimizer.lr",
                                       "0.1", "--data_dir", "rows", "--questions", "numbers"})),
            (Words{"finetune_full", "here", "--config", "recipes/demo.yaml", "--data.json_path",
                   "rows/train.jsonl", "--data.val_path", "rows/held_out.jsonl",
                   "--train.max_steps=2", "--fit", "--optimizer.lr", "0.1"}));
  EXPECT_TRUE(options_of({"--lora_r", "4"}).lora) << "only adapters have a rank";
  EXPECT_EQ(options_of({"--print_config"}).finetune_words, Words{"--print_config"});
}

TEST(Demo, FaultsAreSaidAtOnce) {
  for (const Words& words : {Words{"--question", "numbers"}, Words{"--questions", "riddles"},
                             Words{"--model", "nope"}, Words{"one", "two"}, Words{"--data_dir"}})
    EXPECT_THROW(options_of(words), UserError) << words.front();
}

size_t num_rows(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

// An apt-cache that knows this many packages.
void pretend_packages(const TempFolder& bin, int count) {
  test::write_script(
      bin / "apt-cache",
      "i=0; while [ $i -lt " + std::to_string(count) +
          " ]; do echo \"Package: p$i\nDescription: what package number $i is for\n\"; "
          "i=$((i + 1)); done");
}

TEST(Demo, AsksAboutPackagesWhereThereIsAnIndex) {
  const TempFolder bin, folder;
  const Environment path("PATH", bin.path().string() + ":/usr/bin:/bin");
  recipe::DemoOptions options;
  options.data_dir = folder / "rows";
  pretend_packages(bin, 2100);
  make_questions(options);
  EXPECT_EQ(num_rows(folder / "rows/train.jsonl"), 2000U);
  EXPECT_EQ(num_rows(folder / "rows/held_out.jsonl"), 100U);
  EXPECT_NE(read_file(folder / "rows/train.jsonl").find("Debian package"), std::string::npos);

  pretend_packages(bin, 2099);
  options.data_dir = folder / "fewer";
  make_questions(options);
  EXPECT_EQ(num_rows(folder / "fewer/train.jsonl"), 2000U);
  EXPECT_EQ(read_file(folder / "fewer/train.jsonl").find("Debian package"), std::string::npos);

  options.questions = "debian";
  try {
    make_questions(options);
    ADD_FAILURE() << "2,099 packages were enough";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("2,099"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("apt-get update"), std::string::npos);
  }
}

}  // namespace
}  // namespace snug::demo
