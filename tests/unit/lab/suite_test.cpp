// What a suite's file comes to: from, matrix, sweeps and searches resolved, and the words of each
// row.
// SPDX-License-Identifier: Apache-2.0
#include "lab/suite/suite.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "recipe/parse.h"
#include "suite_text.h"

namespace snug::lab {
namespace suite_test {

using test::read_rest;
using test::row;

// Data that every row here has, so that its command is whole.
constexpr const char* kData = "set: {data: Alpaca2k, train.max_seq_length: 128}\n";

std::vector<std::string> ids(const Suite& suite) {
  std::vector<std::string> ids;
  for (const Row& row : suite.rows) ids.push_back(row.id);
  return ids;
}

bool contains(const std::vector<std::string>& words, const std::vector<std::string>& part) {
  return std::search(words.begin(), words.end(), part.begin(), part.end()) != words.end();
}

recipe::Recipe recipe_of(const Suite& suite, const Row& row, const Settings& extra = {}) {
  return recipe::parse_command_line(run_words(suite, row, Mode::Run, extra, "out")).recipe;
}

TEST(Suite, ARowTakesWhatItComesFromAndChangesIt) {
  const Suite suite = read_rest(std::string(kData) + R"(
like: litgpt
hardware: one card
rows:
  - id: first
    title: First
    model: small
    set: {precision: 32-true, train: {micro_batch_size: 8, global_batch_size: 8}}
    expect: oom
    published: {reserved: 2GiB}
    notes: of the first
  - id: second
    from: first
    model: large
    like: none
    device: rtx-4090
    memory_budget: 20GiB
    set: {precision: bf16-true}
    expect: {outcome: ok, memory: {less_than: first}, time: {same_as: [first, second]}}
)");
  EXPECT_EQ(ids(suite), (std::vector<std::string>{"first", "second"}));
  const Row& first = row(suite, "first");
  EXPECT_EQ(first.device, "a100-80");
  EXPECT_EQ(first.like, "litgpt");
  EXPECT_EQ(first.hardware, "one card");
  EXPECT_EQ(first.expected, Expected::OutOfMemory);
  EXPECT_EQ(first.published.reserved, std::vector<double>{2.0 * 1024 * 1024 * 1024});
  const Row& second = row(suite, "second");
  EXPECT_EQ(second.from, "first");
  EXPECT_EQ(second.model, "large");
  EXPECT_EQ(second.title, "second");
  EXPECT_EQ(second.like, "");
  EXPECT_EQ(second.device, "rtx-4090");
  EXPECT_EQ(second.memory_budget, "20GiB");
  // What came of the other row is not this one's.
  EXPECT_TRUE(second.published.empty());
  EXPECT_TRUE(second.notes.empty());
  EXPECT_EQ(second.expected, Expected::Ok);
  ASSERT_EQ(second.comparisons.size(), 3U);
  EXPECT_EQ(second.comparisons[0].than, "first");
  EXPECT_EQ(second.comparisons[0].quantity, Comparison::Quantity::Memory);
  EXPECT_EQ(second.comparisons[0].relation, Comparison::Relation::Less);
  EXPECT_EQ(second.comparisons[2].quantity, Comparison::Quantity::Time);
  EXPECT_EQ(second.comparisons[2].relation, Comparison::Relation::Same);
  const recipe::Recipe recipe = recipe_of(suite, second);
  EXPECT_EQ(recipe.precision, "bf16-true");
  EXPECT_EQ(recipe.train.micro_batch_size, 8);
  EXPECT_EQ(recipe.train.max_seq_length, 128);
}

TEST(Suite, SaysWhichTimesAreFitted) {
  const Suite suite = read_rest(std::string(kData) + R"(
time_is_fitted: true
rows:
  - {id: a, model: small}
  - {id: b, model: small, time_is_fitted: false}
  - {id: c, from: b}
)");
  EXPECT_TRUE(row(suite, "a").time_is_fitted);
  EXPECT_FALSE(row(suite, "b").time_is_fitted);
  EXPECT_FALSE(row(suite, "c").time_is_fitted);
  try {
    read_rest(std::string(kData) + "rows: [{id: a, model: small, time_is_fitted: often}]\n");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("time_is_fitted: \"often\""), std::string::npos)
        << error.what();
  }
}

// A price is one device's: a row on another has none unless it says so.
TEST(Suite, APriceStaysWithItsDevice) {
  const Suite suite = read_rest(std::string(kData) + R"(
price_per_hour: 2.49 USD
rows:
  - {id: a, model: small}
  - {id: b, from: a, device: rtx-4090}
  - {id: c, from: b, price_per_hour: 0.6}
  - {id: d, from: c, device: a100-80, price_per_hour: 3}
  - {id: e, from: a, price_per_hour: null}
)");
  const auto price = [&](const char* id) { return row(suite, id).price_per_hour; };
  EXPECT_EQ(price("a"), "2.49 USD");
  EXPECT_EQ(price("b"), "");
  EXPECT_EQ(price("c"), "0.6");
  EXPECT_EQ(price("d"), "3");
  EXPECT_EQ(price("e"), "");
  try {
    read_rest(std::string(kData) + "price_per_hour: cheap\nrows: [{id: a, model: small}]\n");
    ADD_FAILURE() << "it was read";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("\"cheap\" is no price"), std::string::npos)
        << error.what();
  }
}

TEST(Suite, NullTakesAnOptionBack) {
  const Suite suite = read_rest(std::string(kData) + R"(
rows:
  - {id: a, model: small, set: {activation_checkpointing: all, train.max_norm: 1.0}}
  - {id: b, from: a, set: {act_ckpt: null}}
  - {id: c, from: b, set: {train.max_norm: none}}
)");
  EXPECT_EQ(recipe_of(suite, row(suite, "a")).activation_checkpointing, "all");
  const auto words = run_words(suite, row(suite, "b"), Mode::Run, {}, "out");
  EXPECT_EQ(std::count(words.begin(), words.end(), "--activation_checkpointing"), 0);
  EXPECT_EQ(recipe_of(suite, row(suite, "b")).activation_checkpointing, "none");
  EXPECT_TRUE(recipe_of(suite, row(suite, "b")).train.max_norm.has_value());
  EXPECT_FALSE(recipe_of(suite, row(suite, "c")).train.max_norm.has_value());
}

// Another name of the same option takes its place, and stays as written, since some names have
// words of their own.
TEST(Suite, AnOptionHasOneValueUnderAllItsNames) {
  const Suite suite = read_rest(std::string(kData) + R"(
rows:
  - {id: a, model: small, set: {activation_checkpointing: selective, train.micro_batch_size: 4}}
  - {id: b, from: a, set: {act_ckpt: true, batch_size: 2}}
)");
  EXPECT_EQ(row(suite, "b").options.size(), row(suite, "a").options.size());
  const recipe::Recipe recipe = recipe_of(suite, row(suite, "b"));
  EXPECT_EQ(recipe.activation_checkpointing, "all");
  EXPECT_EQ(recipe.train.micro_batch_size, 2);
}

TEST(Suite, AnotherOptimizerDropsTheFirstOnesArguments) {
  const Suite suite = read_rest(std::string(kData) + R"(
rows:
  - id: a
    model: small
    set: {optimizer: {class_path: torch.optim.AdamW, init_args: {lr: 3.0e-05, betas: [0.8, 0.9]}}}
  - {id: b, from: a, set: {optimizer: SGD}}
)");
  const recipe::Recipe adamw = recipe_of(suite, row(suite, "a"));
  EXPECT_EQ(adamw.optimizer.lr, 3e-5);
  EXPECT_EQ(adamw.optimizer.beta1, 0.8);
  const recipe::Recipe sgd = recipe_of(suite, row(suite, "b"));
  EXPECT_EQ(sgd.optimizer.name, "sgd");
  EXPECT_EQ(sgd.optimizer.lr, 1e-3);
}

TEST(Suite, ListsFlagsAndOddWordsReachTheCommandLine) {
  const Suite suite = read_rest(std::string(kData) + R"(
command: finetune
rows:
  - id: a
    model: small
    set:
      lora_target_modules: [q_proj, v_proj]
      optimizer.betas: [0.9, 0.95]
      optimizer_in_backward: yes
      data: ImageFolder
      data.path: pictures
      data.prompt: "--a prompt: with 'marks' {and} = signs"
)");
  const recipe::Recipe recipe = recipe_of(suite, row(suite, "a"));
  EXPECT_EQ(recipe.lora.target_modules, "q_proj,v_proj");
  EXPECT_EQ(recipe.optimizer.beta2, 0.95);
  EXPECT_TRUE(recipe.optimizer_in_backward);
  EXPECT_EQ(recipe.data.prompt, "--a prompt: with 'marks' {and} = signs");
}

TEST(Suite, AMatrixIsAProductWhoseLastAxisChangesFastest) {
  const Suite suite = read_rest(std::string(kData) + R"(
matrix:
  id: "{model}-b{batch}-{technique}"
  title: "{model}, {technique}"
  axes:
    model: [small, large]
    batch: {1: {batch_size: 1}, 4: {batch_size: 4}}
    technique: {plain: {}, checkpointing: {act_ckpt: true}}
  expect: {large-b4-plain: oom, default: ok}
  published: {small-b1-plain: {reserved: 1GiB}}
)");
  EXPECT_EQ(ids(suite), (std::vector<std::string>{"small-b1-plain", "small-b1-checkpointing",
                                                  "small-b4-plain", "small-b4-checkpointing",
                                                  "large-b1-plain", "large-b1-checkpointing",
                                                  "large-b4-plain", "large-b4-checkpointing"}));
  const Row& last = suite.rows.back();
  EXPECT_EQ(last.model, "large");
  EXPECT_EQ(last.title, "large, checkpointing");
  EXPECT_EQ(last.from, "large-b4-plain");
  EXPECT_EQ(recipe_of(suite, last).activation_checkpointing, "all");
  EXPECT_EQ(recipe_of(suite, last).train.micro_batch_size, 4);
  EXPECT_EQ(suite.rows[0].from, "");
  EXPECT_FALSE(suite.rows[0].published.empty());
  EXPECT_TRUE(suite.rows[1].published.empty());
  for (const Row& each : suite.rows)
    EXPECT_EQ(each.expected, each.id == "large-b4-plain" ? Expected::OutOfMemory : Expected::Ok);
}

TEST(Suite, AnAxisMayBeAnOptionsValues) {
  const Suite suite = read_rest(std::string(kData) + R"(
matrix:
  model: small
  axes: {precision: [32-true, bf16-true], train.micro_batch_size: [1, 2]}
)");
  EXPECT_EQ(ids(suite),
            (std::vector<std::string>{"32-true-1", "32-true-2", "bf16-true-1", "bf16-true-2"}));
  EXPECT_EQ(recipe_of(suite, suite.rows[2]).precision, "bf16-true");
  EXPECT_EQ(recipe_of(suite, suite.rows[3]).train.micro_batch_size, 2);
}

TEST(Suite, ASweepIsOneRowAValue) {
  const Suite suite = read_rest(std::string(kData) + R"(
rows:
  - {id: base, model: small, set: {precision: bf16-true}}
sweeps:
  - id: grow
    title: Growing
    from: base
    over: train.micro_batch_size
    together: train.global_batch_size
    row_id: "{id}-b{value}"
    values: {from: 1, factor: 4, to: 70}
    expect: {64: oom, default: ok}
    published: {4: {iteration_seconds: 0.5}}
    notes_of: {16: the third}
    explained_of: {64: what is counted leaves no room}
  - {id: steps, from: base, over: train.max_seq_length, values: {from: 64, step: 32, to: 130}}
)");
  EXPECT_EQ(ids(suite),
            (std::vector<std::string>{"base", "grow-b1", "grow-b4", "grow-b16", "grow-b64",
                                      "steps-64", "steps-96", "steps-128"}));
  const Row& third = row(suite, "grow-b16");
  EXPECT_EQ(third.title, "Growing, batch 16");
  EXPECT_EQ(third.from, "grow-b4");
  EXPECT_EQ(row(suite, "grow-b1").from, "base");
  EXPECT_EQ(third.group, "grow");
  EXPECT_EQ(third.value, 16);
  EXPECT_EQ(third.notes, std::vector<std::string>{"the third"});
  EXPECT_TRUE(third.explained.empty());
  EXPECT_EQ(row(suite, "grow-b64").explained,
            std::vector<std::string>{"what is counted leaves no room"});
  EXPECT_EQ(third.expected, Expected::Ok);
  EXPECT_EQ(row(suite, "grow-b64").expected, Expected::OutOfMemory);
  EXPECT_EQ(row(suite, "grow-b4").published.iteration_seconds, 0.5);
  EXPECT_EQ(recipe_of(suite, third).train.micro_batch_size, 16);
  EXPECT_EQ(recipe_of(suite, third).train.global_batch_size, 16);
  ASSERT_EQ(suite.groups.size(), 2U);
  EXPECT_EQ(suite.groups[0].kind, Group::Kind::Sweep);
  EXPECT_EQ(suite.groups[0].over, "train.micro_batch_size");
}

TEST(Suite, ASearchMakesTheRowItTries) {
  const Suite suite = read_rest(std::string(kData) + R"(
rows:
  - {id: base, model: small, set: {precision: bf16-true}}
searches:
  - id: batch
    title: Largest batch
    from: base
    over: batch_size
    together: [train.global_batch_size]
    between: [2, 64]
  - {id: model, from: base, over: model}
)");
  ASSERT_EQ(suite.groups.size(), 2U);
  const Group& batch = suite.groups[0];
  EXPECT_EQ(batch.kind, Group::Kind::Search);
  EXPECT_EQ(batch.smallest, 2);
  EXPECT_EQ(batch.largest, 64);
  const Row tried = search_row(batch, 48);
  EXPECT_EQ(tried.id, "batch-48");
  EXPECT_EQ(tried.group, "batch");
  EXPECT_EQ(tried.value, 48);
  EXPECT_EQ(tried.from, "base");
  EXPECT_EQ(recipe_of(suite, tried).train.global_batch_size, 48);
  const Group& model = suite.groups[1];
  EXPECT_EQ(model.largest, 2);
  EXPECT_EQ(search_row(model, 1).model, "small");
  EXPECT_EQ(search_row(model, 2).id, "model-large");
}

TEST(Suite, ModelAndDeviceAreWhatTheModeWants) {
  const Suite suite = read_rest(std::string(kData) + R"(
memory_budget: 70GiB
like: lightning
scaled:
  about: smaller
  memory_budget: 900MiB
  row_timeout: 12
  set: {train.max_seq_length: 32}
rows:
  - id: a
    model: small
    set: {train.max_seq_length: 256, precision: bf16-true}
    plan: {set: {train.max_seq_length: 512}, memory_budget: 60GiB}
    run: {set: {num_threads: 2}}
  - {id: b, from: a, scaled: {set: {precision: 32-true}, memory_budget: 1GiB}}
  - {id: c, model: large}
)");
  EXPECT_EQ(suite.scaled_row_timeout_seconds, 12);
  EXPECT_EQ(suite.scaled_about, "smaller");
  const Row& a = row(suite, "a");
  const auto plan = recipe::parse_command_line(plan_words(suite, a, Mode::Plan, {}));
  EXPECT_EQ(plan.plan.device, "a100-80");
  EXPECT_EQ(plan.plan.like, "lightning");
  EXPECT_TRUE(plan.plan.json);
  EXPECT_EQ(plan.recipe.memory_budget, "60GiB");
  EXPECT_EQ(plan.recipe.train.max_seq_length, 512);
  EXPECT_EQ(plan.recipe.model.config, suite.models.at("small").config);
  EXPECT_EQ(plan.recipe.checkpoint_dir, "");

  const auto run = recipe::parse_command_line(run_words(suite, a, Mode::Run, {}, "out/a"));
  EXPECT_EQ(run.name, "finetune_full");
  EXPECT_EQ(run.recipe.checkpoint_dir, "ckpt/small");
  EXPECT_EQ(run.recipe.model.config, "");
  EXPECT_EQ(run.recipe.train.max_seq_length, 256);
  EXPECT_EQ(run.recipe.num_threads, 2);
  EXPECT_EQ(run.recipe.memory_budget, "");
  EXPECT_EQ(run.recipe.out_dir, "out/a");

  const auto scaled = recipe::parse_command_line(run_words(suite, a, Mode::Scaled, {}, "out/a"));
  EXPECT_EQ(scaled.recipe.model.config, suite.models.at("small").scaled_config);
  EXPECT_EQ(scaled.recipe.checkpoint_dir, "");
  EXPECT_EQ(scaled.recipe.memory_budget, "900MiB");
  EXPECT_EQ(scaled.recipe.train.max_seq_length, 32);
  EXPECT_EQ(scaled.recipe.accelerator, "cpu");
  const auto foreseen = recipe::parse_command_line(plan_words(suite, a, Mode::Scaled, {}));
  EXPECT_EQ(foreseen.plan.device, "cpu");
  EXPECT_EQ(foreseen.plan.like, "");
  EXPECT_EQ(foreseen.recipe.memory_budget, "900MiB");

  const auto other =
      recipe::parse_command_line(run_words(suite, row(suite, "b"), Mode::Scaled, {}, "out/b"));
  EXPECT_EQ(other.recipe.memory_budget, "1GiB");
  EXPECT_EQ(other.recipe.precision, "32-true");
  EXPECT_EQ(other.recipe.train.max_seq_length, 32);
  EXPECT_THROW(run_words(suite, row(suite, "c"), Mode::Scaled, {}, "out/c"), UserError);
}

// A recipe's own checkpoint gives way to the shape that is planned.
TEST(Suite, ARecipeIsStartedFrom) {
  const Suite suite = read_rest(std::string("rows:\n  - {id: a, model: large, set: {config: ") +
                                SNUG_SOURCE_DIR + "/recipes/tiny-llama/full.yaml}}\n");
  const auto words = plan_words(suite, suite.rows[0], Mode::Plan, {});
  EXPECT_TRUE(contains(words, {"--checkpoint_dir", "none"}));
  const auto plan = recipe::parse_command_line(words);
  EXPECT_EQ(plan.recipe.checkpoint_dir, "");
  EXPECT_EQ(plan.recipe.model.config, suite.models.at("large").config);
  EXPECT_EQ(plan.recipe.optimizer.beta2, 0.95);
  EXPECT_EQ(recipe_of(suite, suite.rows[0]).checkpoint_dir, "ckpt/large");
}

TEST(Suite, ThePersonsOptionsComeLastAndStandOnce) {
  const Suite suite =
      read_rest(std::string(kData) + "rows:\n  - {id: a, model: small, set: {batch_size: 4}}\n");
  const auto words = run_words(suite, suite.rows[0], Mode::Run,
                               {{"train.micro_batch_size", "2"}, {"num_threads", "1"}}, "out");
  EXPECT_EQ(std::count(words.begin(), words.end(), "--batch_size"), 0);
  EXPECT_TRUE(contains(words, {"--train.micro_batch_size", "2"}));
  EXPECT_TRUE(contains(words, {"--num_threads", "1"}));
  // A plan's budget as well.
  const auto plan = plan_words(suite, suite.rows[0], Mode::Plan, {{"memory_budget", "5GiB"}});
  EXPECT_EQ(recipe::parse_command_line(plan).recipe.memory_budget, "5GiB");
}

// A plan trains all weights unless something is said of adapters; a run by its command.
TEST(Suite, APlanTrainsWhatTheCommandTrains) {
  const Suite suite = read_rest(std::string(kData) + R"(
rows:
  - {id: full, model: small}
  - {id: lora, model: small, command: finetune}
  - {id: also-full, model: small, command: finetune, set: {full: true}}
)");
  for (const Row& each : suite.rows) {
    const auto plan = recipe::parse_command_line(plan_words(suite, each, Mode::Plan, {}));
    EXPECT_EQ(plan.recipe.full, each.id != "lora") << each.id;
    EXPECT_EQ(recipe_of(suite, each).full, each.id != "lora") << each.id;
  }
}

TEST(Suite, RowsAreChosenByPatternsInTheirOrder) {
  const Suite suite = read_rest(std::string(kData) + R"(
rows: [{id: ls01, model: small}, {id: ls02, model: small}, {id: other, model: small}]
sweeps: [{id: grow, model: small, over: batch_size, together: train.global_batch_size, values: [1, 2]}]
searches: [{id: find, model: small, over: batch_size, together: train.global_batch_size, between: [1, 8]}]
)");
  const auto chosen = [&](const std::string& patterns) {
    std::vector<std::string> ids;
    for (const Row* row : chosen_rows(suite, patterns)) ids.push_back(row->id);
    return ids;
  };
  EXPECT_EQ(chosen("").size(), 5U);
  EXPECT_EQ(chosen("other, ls0*"), (std::vector<std::string>{"ls01", "ls02", "other"}));
  EXPECT_EQ(chosen("grow"), (std::vector<std::string>{"grow-1", "grow-2"}));
  EXPECT_EQ(chosen("grow-2"), (std::vector<std::string>{"grow-2"}));
  EXPECT_EQ(chosen("find"), std::vector<std::string>{});
  EXPECT_EQ(chosen_searches(suite, "find").size(), 1U);
  EXPECT_EQ(chosen_searches(suite, "").size(), 1U);
  EXPECT_EQ(chosen_searches(suite, "ls*").size(), 0U);
  try {
    chosen_rows(suite, "ls01,ls3");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "suite mine has no row ls3; snug lab list mine shows them");
  }
}

class SuiteFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(folder_ / "zebra.yaml") << "suite: zebra\n";
    std::ofstream(folder_ / "litgpt-single.yaml") << "suite: litgpt-single\n";
    std::ofstream(folder_ / "notes.txt") << "no suite\n";
    ::setenv("SNUG_SUITES", folder_.path().c_str(), 1);
  }
  void TearDown() override { ::unsetenv("SNUG_SUITES"); }
  test::TempFolder folder_;
};

TEST_F(SuiteFiles, TheFirstFolderWithANameWins) {
  const auto files = suite_files();
  EXPECT_NE(std::find(files.begin(), files.end(), folder_ / "zebra.yaml"), files.end());
  EXPECT_EQ(find_suite("litgpt-single"), folder_ / "litgpt-single.yaml");
  for (const auto& file : files) EXPECT_EQ(file.extension(), ".yaml");
  std::vector<std::string> names;
  for (const auto& file : files) names.push_back(file.stem());
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST_F(SuiteFiles, APathIsTakenAndAWrongNameExplained) {
  EXPECT_EQ(find_suite(folder_ / "zebra.yaml"), folder_ / "zebra.yaml");
  const auto message = [](const std::string& name) -> std::string {
    try {
      find_suite(name);
    } catch (const UserError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_NE(message("zebar").find("did you mean zebra?"), std::string::npos);
  EXPECT_NE(message("zebar").find("litgpt-single"), std::string::npos);
  EXPECT_NE(message("nowhere/zebra.yaml").find("no such file"), std::string::npos);
}

}  // namespace suite_test
}  // namespace snug::lab
