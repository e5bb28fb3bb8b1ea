// Recipes whose data are mixed of several sources.
// SPDX-License-Identifier: Apache-2.0
#include "recipe/data_sources.h"

#include "recipe/check.h"
#include "recipe/faults.h"
#include "recipe/options/names.h"
#include "recipe/print.h"
#include "support.h"

namespace snug::recipe {
namespace data_sources_test {

std::vector<DataSource> sources_of(const Recipe& recipe) {
  DataSources found = data_sources(recipe.data, recipe.given_keys);
  EXPECT_TRUE(found.faults.empty()) << found.faults.front();
  return std::move(found.all);
}

constexpr const char* kMixed = R"(
checkpoint_dir: m
data:
  seed: 7
  mask_prompt: true
  sources:
    - chats.jsonl
    - file: more/code.jsonl
      weight: 2.5
      mask_prompt: false
      val_split_fraction: 0.1
    - class_path: litgpt.data.Alpaca2k
      init_args: {}
      share: 0.2
    - class_path: TextFiles
      file: books
    - file: notes.md
      prompt_style: "plain"
)";

TEST(DataSources, EachHasItsOwnKeysAndThoseBesideTheList) {
  const Recipe recipe = recipe_from(kMixed);
  EXPECT_EQ(recipe.data.class_path, "Mix");
  EXPECT_EQ(recipe.data.seed, 7U);
  const std::vector<DataSource> sources = sources_of(recipe);
  ASSERT_EQ(sources.size(), 5U);
  EXPECT_EQ(sources[0].name, "chats.jsonl");
  EXPECT_EQ(sources[0].data.json_path, "chats.jsonl");
  EXPECT_EQ(sources[0].data.mask_prompt, true);
  EXPECT_EQ(sources[0].weight, std::nullopt);
  EXPECT_EQ(sources[1].name, "code.jsonl");
  EXPECT_EQ(sources[1].data.json_path, "more/code.jsonl");
  EXPECT_EQ(sources[1].weight, 2.5);
  EXPECT_EQ(sources[1].data.mask_prompt, false);
  EXPECT_EQ(sources[1].data.val_split_fraction, 0.1);
  EXPECT_TRUE(sources[1].given.contains("data.val_split_fraction"));
  EXPECT_EQ(sources[2].data.class_path, "Alpaca2k");
  EXPECT_EQ(sources[2].share, 0.2);
  EXPECT_EQ(sources[2].data.prompt_style, data_prompt_style("Alpaca2k"));
  EXPECT_EQ(sources[3].name, "books");
  EXPECT_EQ(sources[3].data.class_path, "TextFiles");
  EXPECT_EQ(sources[3].data.path, "books");
  EXPECT_EQ(sources[4].data.class_path, "TextFiles");
  EXPECT_EQ(sources[4].data.path, "notes.md");
  EXPECT_EQ(sources[4].data.prompt_style, "plain");
}

TEST(DataSources, APrintedRecipeReadsBackTheSame) {
  const Recipe recipe = recipe_from(kMixed);
  const Recipe again = recipe_from(print_recipe_yaml(recipe));
  EXPECT_EQ(again.data, recipe.data);
  EXPECT_TRUE(recipe_json(recipe)["data"]["sources"].is_array());
}

TEST(DataSources, AListOrNamesWithCommasAreSources) {
  const auto names = [](const Recipe& recipe) {
    std::vector<std::string> all;
    for (const DataSource& source : sources_of(recipe)) all.push_back(source.name);
    return all;
  };
  const std::vector<std::string> wanted = {"a.jsonl", "b.csv"};
  EXPECT_EQ(names(recipe_from("data: [a.jsonl, b.csv]\n")), wanted);
  EXPECT_EQ(names(recipe_from("data:\n  - file: a.jsonl\n  - b.csv\n")), wanted);
  EXPECT_EQ(names(recipe_from("", {"--data", "a.jsonl,b.csv"})), wanted);
  EXPECT_EQ(names(recipe_from("", {"--data", "[a.jsonl, {file: b.csv, weight: 2}]"})), wanted);
  EXPECT_EQ(names(recipe_from("", {"--data.sources", "[x/a.jsonl, {file: b.csv}]"})), wanted);
  EXPECT_EQ(names(recipe_from("data: [x/a.jsonl, y/a.jsonl, y/a.jsonl]\n")),
            (std::vector<std::string>{"x/a.jsonl", "y/a.jsonl", "y/a.jsonl 2"}));
}

TEST(DataSources, TheCommandLineNamesOtherDataThanTheFile) {
  const Recipe one = recipe_from(kMixed, {"--data", "other.jsonl"});
  EXPECT_EQ(one.data.sources, "");
  EXPECT_EQ(one.data.class_path, "JSON");
  EXPECT_EQ(one.data.json_path, "other.jsonl");
  const Recipe two = recipe_from("data: {class_path: JSON, init_args: {json_path: a.jsonl}}\n",
                                 {"--data", "b.jsonl,c.jsonl"});
  EXPECT_EQ(two.data.json_path, "");
  EXPECT_EQ(sources_of(two).size(), 2U);
}

TEST(DataSources, WhatIsWrongSaysInWhichSource) {
  const auto fault_of = [](const std::string& yaml) {
    return error_of([&] {
      const Recipe recipe = recipe_from(yaml);
      throw_faults(data_faults(recipe.data, recipe.given_keys), "");
    });
  };
  EXPECT_CONTAINS(fault_of("data: [a.jsonl, {file: b.jsonl, wait: 2}]\n"),
                  "data.sources[2].wait: unknown key");
  EXPECT_CONTAINS(fault_of("data: [a.jsonl, {file: b.jsonl, weight: 0}]\n"),
                  "data.sources[2].weight");
  EXPECT_CONTAINS(fault_of("data: [a.jsonl, {file: b.jsonl, weight: 1, share: 0.5}]\n"),
                  "data.sources[2]: has a weight and a share; keep one");
  EXPECT_CONTAINS(fault_of("data: [a.jsonl, {file: b.jsonl, seed: 1}]\n"),
                  "data.sources[2].seed: holds for all sources; give it beside them, as data.seed");
  EXPECT_CONTAINS(fault_of("data: [a.jsonl, {class_path: TextFiles}]\n"), "data.path is not set");
  EXPECT_CONTAINS(fault_of("data: [a.jsonl, {class_path: Synthetic}]\n"),
                  "Synthetic cannot be one of several");
  EXPECT_CONTAINS(fault_of("data: [a.jsonl, [b.jsonl]]\n"),
                  "data.sources[2]: must be a file, a name, or a mapping");
  EXPECT_CONTAINS(fault_of("data: {json_path: c.jsonl, sources: [a.jsonl]}\n"),
                  "data.json_path and data.sources are both set");
  EXPECT_CONTAINS(fault_of("data: {class_path: Alpaca2k, sources: [a.jsonl]}\n"), "keep one");
  EXPECT_CONTAINS(fault_of("data: []\n"), "data.sources: must be a list of data sets");
  EXPECT_CONTAINS(fault_of("data: {class_path: Mix}\n"), "name them in data.sources");
  EXPECT_CONTAINS(error_of([] { parse("evaluate m --data a.jsonl,b.jsonl"); }),
                  "one data set at a time");
  EXPECT_CONTAINS(fault_of("train: {max_steps: [[1]]}\n"),
                  "the list contains a list or mapping; give plain values");
}

TEST(DataSources, DataShowReadsARecipe) {
  const TemporaryFile file(kMixed);
  const ParsedCommand parsed =
      parse_command_line(std::vector<std::string>{"data", "show", file.string(), "--model", "m"});
  EXPECT_EQ(parsed.show_data.data.class_path, "Mix");
  EXPECT_EQ(data_sources(parsed.show_data.data, parsed.show_data.given_keys).all.size(), 5U);
  const ParsedCommand two = parse("data show a.jsonl,b.jsonl --model m");
  EXPECT_EQ(data_sources(two.show_data.data, {}).all.size(), 2U);
}

}  // namespace data_sources_test
}  // namespace snug::recipe
