// Every recipe that we ship, and every command line of LitGPT that we promise, against LitGPT's own
// reading of them (tests/oracles/config_litgpt.py).
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "recipe/check.h"
#include "recipe/options/command_table.h"
#include "recipe/options/names.h"
#include "recipe/options/rows.h"
#include "recipe/print.h"
#include "recipe/settings.h"
#include "recipe/tables/optimizers.h"
#include "support.h"

namespace snug::recipe {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// What is in recipes/lab is suites of runs.
std::vector<fs::path> shipped_recipes() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(SNUG_SOURCE_DIR) / "recipes"))
    if (entry.path().extension() == ".yaml" && entry.path().parent_path().filename() != "lab")
      files.push_back(entry.path());
  return files;
}

// Paths in lines stand as from the repository's root.
ParsedCommand parse_from_root(const std::string& line) {
  std::vector<std::string> words = split(line);
  for (std::string& word : words)
    if (word.starts_with("recipes/")) word = std::string(SNUG_SOURCE_DIR) + "/" + word;
  return parse_command_line(words);
}

// {"train": {"epochs": 1}} -> "train.epochs": 1, without LitGPT's init_args.
void flatten(const json& tree, const std::string& prefix, std::map<std::string, json>& out) {
  for (const auto& [key, value] : tree.items()) {
    const std::string path = canonical_key(prefix.empty() ? key : prefix + "." + key);
    if (value.is_object())
      flatten(value, path, out);
    else
      out[path] = value;
  }
}

// Their value as we would write it.
json normalised(const std::string& key, const json& value) {
  if (key == "data.class_path") return normalise_data(value.get<std::string>());
  if (key == "optimizer.class_path") return normalise_optimizer(value.get<std::string>());
  if (key == "precision" && value.is_null()) return "bf16-mixed";
  if (key == "train.lr_warmup_steps" && value.is_null()) return 0;
  if (key == "devices") return std::to_string(value.get<int>());
  if (key == "resume")
    return value.is_boolean() ? json(value.get<bool>() ? "true" : "false") : value;
  return value;
}

TEST(Recipes, ResolveToLitgptsValues) {
  const json oracle = json::parse(read_file(fs::path(SNUG_DATA_DIR) / "litgpt_resolved.json"));
  ASSERT_GT(oracle["runs"].size(), 20u);
  for (const json& run : oracle["runs"]) {
    const std::string line = run["line"];
    SCOPED_TRACE(line);
    std::map<std::string, json> ours, theirs;
    flatten(recipe_json(parse_from_root(line).recipe), "", ours);
    flatten(run["resolved"], "", theirs);
    // LitGPT has no other style for rows of its own than Alpaca's, which is ours for such rows too.
    if (ours["data.prompt_style"] == "auto") ours["data.prompt_style"] = "alpaca";
    if (theirs.contains("optimizer")) {  // a bare name: no arguments are printed
      theirs["optimizer.class_path"] = theirs["optimizer"];
      theirs.erase("optimizer");
    }
    // Their default data set is not ours: without --data snug trains on a file of yours.
    if (theirs.contains("data")) theirs.erase("data");
    int compared = 0;
    for (const auto& [key, value] : theirs) {
      if (find_ignored_key(key) || key == "access_token" || key == "data.download_dir") continue;
      // There --seed leaves the split and order of samples as they are.
      if (key == "data.seed" && ours["seed"] != 1337) continue;
      // LitGPT's min_lr does not depend on what trains; and LitGPT has no rows of turns.
      if (key == "train.min_lr" && ours["optimizer.lr"] == kRateOfAllWeights) continue;
      if (key == "data.mask_prompt" && ours[key].is_null() && value == false) continue;
      ASSERT_TRUE(ours.contains(key)) << key;
      EXPECT_EQ(ours[key], normalised(key, value)) << key;
      ++compared;
    }
    EXPECT_GT(compared, 25);
  }
}

TEST(Recipes, AllShippedOnesParseAndPrint) {
  const std::vector<fs::path> files = shipped_recipes();
  EXPECT_GE(files.size(), 13u);
  for (const fs::path& file : files) {
    SCOPED_TRACE(file.string());
    const bool lora = file.stem().string().ends_with("lora");
    const Command command = lora ? Command::FinetuneLora : Command::FinetuneFull;
    Recipe recipe = recipe_of_file(file, {}, command);
    if (recipe.checkpoint_dir.empty()) recipe.checkpoint_dir = "model.gguf";
    if (recipe.data.class_path == "JSON") recipe.data.json_path = "data.json";
    for (const std::string& fault : recipe_faults(command, recipe)) ADD_FAILURE() << fault;
  }
}

TEST(Recipes, PagedOptimizersHaveTheirStatesOnTheHost) {
  const std::string base = "finetune x --optimizer ";
  const Recipe paged = parse_from_root(base + "bitsandbytes.optim.PagedAdamW32bit").recipe;
  EXPECT_EQ(paged.optimizer.name, "adamw");
  EXPECT_EQ(paged.optimizer.state_dtype, "float32");
  EXPECT_EQ(paged.optimizer_offload, "cpu");
  const Recipe small = parse_from_root(base + "PagedAdamW8bit --optimizer.lr 0.001").recipe;
  EXPECT_EQ(small.optimizer.name, "adamw_8bit");
  EXPECT_EQ(small.optimizer.lr, 0.001);
  EXPECT_EQ(small.optimizer_offload, "cpu");
  EXPECT_EQ(parse_from_root(base + "paged_adamw --optimizer_offload none").recipe.optimizer_offload,
            "none");
}

// In the words of the script that they come from.
TEST(Recipes, OfBlip2SayWhatTheScriptDid) {
  const auto load = [](const char* name, Command command = Command::FinetuneFull) {
    const fs::path file = fs::path(SNUG_SOURCE_DIR) / "recipes/blip2" / name;
    const Recipe recipe = recipe_of_file(file, {}, command);
    EXPECT_EQ(recipe.train.lr_warmup_steps, 0) << name;
    EXPECT_EQ(recipe.data.max_samples, 512) << name;
    EXPECT_FALSE(recipe.train.save_interval || recipe.train.save_model) << name;
    return recipe;
  };
  const Recipe accumulated = load("bs03-accumulate.yaml");
  EXPECT_EQ(accumulated.train.micro_batch_size, 16);
  EXPECT_EQ(accumulated.train.global_batch_size, 64);
  EXPECT_EQ(accumulated.optimizer.weight_decay, 0.01);
  EXPECT_FALSE(accumulated.train.max_steps);
  EXPECT_EQ(load("bm02-ddp4.yaml").train.global_batch_size, 256);
  EXPECT_EQ(load("bs12-xxl-actckpt.yaml").activation_checkpointing, "all");
  const Recipe offload = load("bs13-xxl-ds2-offload.yaml");
  EXPECT_EQ(offload.optimizer_offload, "cpu");
  EXPECT_TRUE(offload.optimizer.master_weights);
  EXPECT_EQ(offload.train.max_steps, 2);
  const Recipe qlora = load("bp02-xxl-qlora.yaml", Command::FinetuneLora);
  EXPECT_TRUE(qlora.lora.enabled);
  EXPECT_EQ(qlora.quantize, "bnb.nf4");
  EXPECT_EQ(qlora.lora.target_modules, "q,v");
}

Recipe with_rate(const fs::path& file, const std::string& rate) {
  const bool lora = file.stem().string().ends_with("lora");
  return recipe_of_file(file, {"--lr", rate}, lora ? Command::FinetuneLora : Command::FinetuneFull);
}

// The scripts have no schedule: another rate stays, too, be it higher or lower.
TEST(Recipes, OfTheCoursesScriptsKeepTheRateThatIsGiven) {
  int count = 0;
  for (const char* folder : {"recipes/blip2", "recipes/litgpt-scripts"})
    for (const auto& entry : fs::directory_iterator(fs::path(SNUG_SOURCE_DIR) / folder)) {
      for (const char* rate : {"3e-4", "3e-7"}) {
        const Recipe recipe = with_rate(entry.path(), rate);
        EXPECT_EQ(recipe.optimizer.lr, std::stod(rate)) << entry.path();
        EXPECT_EQ(recipe.train.lr_schedule, LrSchedule::Constant) << entry.path();
        EXPECT_EQ(recipe.train.lr_warmup_steps, 0) << entry.path();
      }
      ++count;
    }
  EXPECT_EQ(count, 18 + 11);
}

// LitGPT's recipes warm up and decay as there, from the rate that is given and never up from it.
TEST(Recipes, OfTheCoursesLitgptDecayFromTheRateThatIsGiven) {
  for (const char* model : {"tiny-llama", "open-llama-3b", "open-llama-7b", "open-llama-13b"})
    for (const auto& entry :
         fs::directory_iterator(fs::path(SNUG_SOURCE_DIR) / "recipes" / model)) {
      const Recipe own = with_rate(entry.path(), "2e-4");
      for (const char* rate : {"3e-4", "3e-7"}) {
        const Recipe recipe = with_rate(entry.path(), rate);
        EXPECT_EQ(recipe.optimizer.lr, std::stod(rate)) << entry.path();
        EXPECT_EQ(recipe.train.lr_schedule, LrSchedule::Cosine) << entry.path();
        EXPECT_EQ(recipe.train.lr_warmup_steps, own.train.lr_warmup_steps) << entry.path();
        EXPECT_LE(recipe.train.min_lr, recipe.optimizer.lr) << entry.path();
      }
    }
}

TEST(Recipes, TargetModulesMayBeAList) {
  const fs::path file = fs::path(::testing::TempDir()) / "targets.yaml";
  write_file_atomically(file, "lora_target_modules: [q_proj, v_proj]\n");
  const Recipe recipe = recipe_of_file(file, {}, Command::FinetuneLora);
  EXPECT_EQ(recipe.lora.target_modules, "q_proj,v_proj");
  fs::remove(file);
}

TEST(Recipes, LoraRecipesCanTrainAllWeights) {
  const std::string line = "finetune --full --config recipes/tiny-llama/lora.yaml";
  const Recipe recipe = parse_from_root(line).recipe;
  EXPECT_FALSE(recipe.lora.enabled);
  EXPECT_TRUE(recipe_faults(Command::FinetuneLora, recipe).empty());
}

}  // namespace
}  // namespace snug::recipe
