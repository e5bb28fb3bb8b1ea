// The suites that come with snug: each reads, has every published run, and gives each one the
// options that its source gives.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "base/files.h"
#include "lab/suite/suite.h"
#include "published_rows.h"
#include "recipe/parse.h"
#include "recipe/print.h"
#include "support/temp_folder.h"

namespace snug::lab {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = fs::path(SNUG_SOURCE_DIR) / "recipes/lab";

std::vector<fs::path> shipped() {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(kFolder))
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

const Suite& suite(const std::string& name) {
  static std::map<std::string, Suite> suites;
  const auto found = suites.find(name);
  if (found != suites.end()) return found->second;
  return suites.emplace(name, read_suite(kFolder / (name + ".yaml"))).first->second;
}

const Row& row(const std::string& name, const std::string& id) {
  for (const Row& row : suite(name).rows)
    if (row.id == id) return row;
  throw std::out_of_range(name + " has no row " + id);
}

recipe::Recipe recipe_of(const Suite& suite, const Row& row) {
  return recipe::parse_command_line(run_words(suite, row, Mode::Run, {}, "out")).recipe;
}

TEST(ShippedSuites, AllRead) {
  ASSERT_GE(shipped().size(), 9U);
  for (const fs::path& file : shipped()) {
    const Suite& read = suite(file.stem());
    EXPECT_FALSE(read.title.empty()) << file;
    EXPECT_FALSE(read.about.empty()) << file;
    // A source makes a row that ends as expected one that is as published.
    EXPECT_EQ(read.source.empty(), file.stem() == "techniques") << file;
    EXPECT_FALSE(read.device.empty()) << file;
    EXPECT_GT(read.row_timeout_seconds, 0) << file;
    for (const Row& row : read.rows) {
      EXPECT_FALSE(row.title.empty()) << row.id;
      EXPECT_FALSE(row.hardware.empty()) << row.id;
    }
  }
}

// Every row in every mode becomes words that the program takes; searches at both of their ends.
TEST(ShippedSuites, EveryRowsWordsAreTaken) {
  for (const fs::path& file : shipped()) {
    const Suite& read = suite(file.stem());
    std::vector<Row> rows = read.rows;
    for (const Group& group : read.groups)
      if (group.kind == Group::Kind::Search)
        rows.insert(rows.end(),
                    {search_row(group, group.smallest), search_row(group, group.largest)});
    for (const Row& row : rows) {
      const auto plan = recipe::parse_command_line(plan_words(read, row, Mode::Plan, {}));
      EXPECT_EQ(plan.plan.device, row.device) << row.id;
      EXPECT_EQ(plan.plan.like, row.like) << row.id;
      EXPECT_EQ(plan.recipe.memory_budget, row.memory_budget) << row.id;
      EXPECT_TRUE(plan.recipe.checkpoint_dir.empty()) << row.id;
      const recipe::Recipe run = recipe_of(read, row);
      EXPECT_EQ(run.full, plan.recipe.full) << row.id;
      EXPECT_EQ(run.out_dir, "out") << row.id;
      EXPECT_NE(run.checkpoint_dir.empty(), run.model.config.empty()) << row.id;
      if (read.models.at(row.model).scaled_config.empty()) continue;
      const auto scaled = recipe::parse_command_line(plan_words(read, row, Mode::Scaled, {}));
      EXPECT_EQ(scaled.plan.device, "cpu") << row.id;
      EXPECT_EQ(scaled.recipe.model.config, read.models.at(row.model).scaled_config) << row.id;
      EXPECT_FALSE(scaled.recipe.memory_budget.empty()) << row.id;
    }
  }
}

TEST(ShippedSuites, HaveEveryPublishedRunWithItsOptions) {
  for (const test::PublishedRow& wanted : test::kPublishedRows) {
    SCOPED_TRACE(wanted.id);
    const Row& found = row(wanted.suite, wanted.id);
    EXPECT_STREQ(name(found.expected), wanted.expected);
    const recipe::Recipe recipe = recipe_of(suite(wanted.suite), found);
    EXPECT_EQ(recipe.precision, wanted.precision);
    EXPECT_EQ(recipe.optimizer.name, wanted.optimizer);
    EXPECT_EQ(recipe.train.micro_batch_size, wanted.micro_batch);
    EXPECT_EQ(recipe.train.global_batch_size, wanted.global_batch);
    EXPECT_EQ(std::stoll(recipe.devices) * recipe.num_nodes, wanted.devices);
    EXPECT_EQ(recipe.train.max_seq_length, wanted.tokens);
    EXPECT_EQ(recipe.activation_checkpointing, wanted.checkpointing ? "all" : "none");
    EXPECT_EQ(recipe.full, wanted.lora_rank == 0);
    EXPECT_EQ(recipe.full ? 0 : recipe.lora.r, wanted.lora_rank);
    EXPECT_EQ(recipe.quantize, wanted.quantize);
    EXPECT_EQ(recipe.train.max_steps.value_or(0), wanted.max_steps);
  }
  // Announced by its source and no more.
  EXPECT_EQ(row("fsdp-sweep", "fs-cpu-offload").expected, Expected::Unknown);
  EXPECT_EQ(recipe_of(suite("fsdp-sweep"), row("fsdp-sweep", "fs-cpu-offload")).optimizer_offload,
            "cpu");
}

// The course's scripts by their names: what each trains is the row that was published of it.
TEST(ShippedSuites, RecipesOfScriptsAreTheirRowsAsPublished) {
  const std::map<std::string, std::pair<std::string, std::string>> rows{
      {"a100_llama7b_1device", {"litgpt-multi", "lm01-7b-1gpu"}},
      {"a100_llama7b_4ddp", {"litgpt-multi", "lm02-7b-ddp4"}},
      {"a100_llama7b_4fsdp", {"litgpt-multi", "lm03-7b-fsdp4"}},
      {"a100_llama7b_4fsdp_8batch", {"litgpt-multi", "lm04-7b-fsdp4-batch8"}},
      {"a100_llama7b_4fsdp_12batch", {"litgpt-multi", "lm05-7b-fsdp4-batch12"}},
      {"a100_llama13b_deepspeed", {"litgpt-multi", "lm06-13b-ds3-offload"}},
      {"v100_llama1b_1device", {"litgpt-v100", "v100-tiny-1gpu"}},
      {"v100_llama1b_4ddp", {"litgpt-v100", "v100-tiny-ddp4"}},
      {"v100_llama1b_4fsdp", {"litgpt-v100", "v100-tiny-fsdp4"}},
      {"v100_llama3b_1device", {"litgpt-v100", "v100-3b-1gpu"}},
      {"v100_llama3b_4fsdp", {"litgpt-v100", "v100-3b-fsdp4"}}};
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(kFolder.parent_path() / "litgpt-scripts")) {
    SCOPED_TRACE(entry.path());
    const auto& [name, id] = rows.at(entry.path().stem());
    Suite published = suite(name);
    follow_original(published);
    const auto found = std::ranges::find(published.rows, id, &Row::id);
    recipe::Recipe wanted = recipe_of(published, *found);
    const std::vector<std::string> words{"finetune_full", "--config", entry.path()};
    recipe::Recipe script = recipe::parse_command_line(words).recipe;
    EXPECT_TRUE(wanted.checkpoint_dir.ends_with(script.checkpoint_dir)) << wanted.checkpoint_dir;
    wanted.checkpoint_dir = script.checkpoint_dir;
    wanted.out_dir = script.out_dir;
    EXPECT_EQ(recipe::print_recipe_yaml(script), recipe::print_recipe_yaml(wanted));
    ++count;
  }
  EXPECT_EQ(count, rows.size());
}

// What changes numbers is as in the original where that is asked for, and told where it is not.
TEST(ShippedSuites, FollowTheOriginal) {
  Suite blip2 = suite("blip2-single"), litgpt = suite("litgpt-multi");
  EXPECT_FALSE(recipe_of(blip2, blip2.rows[1]).data.padding_in_loss);
  EXPECT_FALSE(blip2.rows[1].original_options.empty());
  follow_original(blip2);
  follow_original(litgpt);
  for (const Row& row : blip2.rows) {
    EXPECT_TRUE(recipe_of(blip2, row).data.padding_in_loss) << row.id;
    EXPECT_TRUE(row.original_options.empty());
  }
  for (const Row& row : litgpt.rows) {
    EXPECT_EQ(recipe_of(litgpt, row).train.lr_warmup_steps, 0) << row.id;
    EXPECT_EQ(recipe_of(litgpt, row).train.lr_schedule, "constant") << row.id;
  }
}

TEST(ShippedSuites, HoldTheRunsOnTheirHardware) {
  const std::map<std::string, std::string> devices = {
      {"litgpt-single", "a100-80"}, {"litgpt-multi", "a100-80"}, {"blip2-single", "h100-94"},
      {"blip2-peft", "h100-94"},    {"blip2-multi", "h100-94"},  {"fsdp-sweep", "v100-16"},
      {"litgpt-v100", "v100-32"},   {"blip2-a100", "a100-80"},   {"techniques", "rtx-4090"}};
  for (const auto& [name, device] : devices)
    for (const Row& row : suite(name).rows) EXPECT_EQ(row.device, device) << row.id;
}

constexpr double kGiB = 1024.0 * 1024 * 1024;

TEST(ShippedSuites, HaveThePublishedFigures) {
  const Published& alone = row("litgpt-multi", "lm01-7b-1gpu").published;
  ASSERT_EQ(alone.allocated_after_forward.size(), 1U);
  EXPECT_NEAR(alone.allocated_after_forward[0] / kGiB, 61.97, 1e-6);
  EXPECT_NEAR(alone.reserved.at(0) / kGiB, 71.35, 1e-6);
  EXPECT_EQ(alone.epoch_seconds, 212);
  EXPECT_EQ(alone.last_loss, 2.12);
  // 1.89 iterations a second, one to a step; then 2.41, four to a step.
  EXPECT_NEAR(*alone.iteration_seconds, 1 / 1.89, 0.005);
  EXPECT_NEAR(*row("litgpt-multi", "lm01-7b-1gpu-accumulate").published.iteration_seconds, 4 / 2.41,
              0.005);
  const Published& ddp = row("litgpt-multi", "lm02-7b-ddp4").published;
  ASSERT_EQ(ddp.allocated_after_forward.size(), 3U);
  EXPECT_NEAR(ddp.allocated_after_forward[2] / kGiB, 73.98, 1e-6);
  EXPECT_EQ(row("blip2-single", "bs01-baseline").published.parameter_bytes, 14e9);

  const Published& sweep = row("fsdp-sweep", "fs-xl-base-b7").published;
  EXPECT_EQ(sweep.reserved.at(0), 14736.0 * 1024 * 1024);
  EXPECT_EQ(sweep.iteration_seconds, 0.748);
  EXPECT_EQ(sweep.teraflops_per_second, 43.52);
  EXPECT_NEAR(*sweep.device_use, 0.862, 1e-12);
  EXPECT_NEAR(*sweep.device_use_spread, 0.097, 1e-12);
  EXPECT_TRUE(row("fsdp-sweep", "fs-xl-base-b9").published.empty());
  EXPECT_TRUE(row("fsdp-sweep", "fs-multinode-4gpu").published.reserved.empty());
}

TEST(ShippedSuites, TheSweepsAreCurves) {
  std::vector<double> batches;
  for (const Row& each : suite("fsdp-sweep").rows)
    if (each.group == "fs-xl-base") batches.push_back(each.value.value());
  EXPECT_EQ(batches, (std::vector<double>{1, 2, 4, 7, 8, 9}));
  const Row& prefetch = row("fsdp-sweep", "fs-xl-ckpt-prefetch-b64");
  EXPECT_TRUE(recipe_of(suite("fsdp-sweep"), prefetch).backward_prefetch);
  EXPECT_FALSE(recipe_of(suite("fsdp-sweep"), row("fsdp-sweep", prefetch.from)).backward_prefetch);
}

TEST(ShippedSuites, EachSuiteOfOneDeviceSearchesForALimit) {
  for (const char* const name :
       {"litgpt-single", "litgpt-v100", "blip2-single", "blip2-peft", "techniques"}) {
    const auto& groups = suite(name).groups;
    EXPECT_TRUE(std::any_of(groups.begin(), groups.end(), [](const Group& g) {
      return g.kind == Group::Kind::Search;
    })) << name;
  }
}

// The blocks of a page between ```yaml and ```.
std::vector<std::string> yaml_blocks(const fs::path& page) {
  std::vector<std::string> blocks;
  const std::string text = read_file(page), open = "```yaml\n", close = "```\n";
  for (size_t at = 0; (at = text.find(open, at)) != std::string::npos;) {
    const size_t begin = at + open.size(), end = text.find(close, begin);
    blocks.push_back(text.substr(begin, end - begin));
    at = end + close.size();
  }
  return blocks;
}

// The guide's file, with the sections that its page goes on to.
TEST(ShippedSuites, TheGuidesExampleReads) {
  const auto blocks = yaml_blocks(fs::path(SNUG_SOURCE_DIR) / "docs/guide/suites.md");
  ASSERT_EQ(blocks.size(), 5U);
  const test::TempFolder folder;
  for (const char* const name : {"models", "tiny-llama"})
    fs::create_symlink(kFolder.parent_path() / name, folder / name);
  fs::create_directory(folder / "lab");
  std::ofstream(folder / "lab/first.yaml") << blocks[0] << blocks[2] << blocks[3];
  const Suite first = read_suite(folder / "lab/first.yaml");
  EXPECT_EQ(first.rows.size(), 3U + 4U);
  EXPECT_EQ(first.groups.size(), 3U);
  EXPECT_EQ(recipe_of(first, first.rows[2]).optimizer.name, "adamw_8bit");
}

}  // namespace
}  // namespace snug::lab
