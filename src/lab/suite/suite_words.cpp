// A row as the words that a person would type.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "lab/suite/suite.h"
#include "lab/suite/suite_options.h"
#include "recipe/options/command_table.h"
#include "recipe/options/rows.h"

namespace snug::lab {
namespace {

using Words = std::vector<std::string>;

void add(Words& words, const std::string& key, const std::string& value) {
  // A value that looks like an option is tied to its key.
  if (value.starts_with("--")) {
    words.push_back("--" + key + "=" + value);
    return;
  }
  words.push_back("--" + key);
  words.push_back(value);
}

Settings settings_of(const Row& row, Mode mode, const Settings& extra) {
  Settings options = row.options;
  const Settings* const layers[] = {&row.plan_options, &row.run_options, &row.scaled_options};
  lay_over(options, *layers[static_cast<size_t>(mode)]);
  lay_over(options, extra);
  return options;
}

// Which files the model comes from. A recipe of its own may name a checkpoint, which random weights
// of a shape take the place of.
struct ModelWords {
  std::string checkpoint;  // a bare word
  std::string config;
};

ModelWords model_words(const Suite& suite, const Row& row, Mode mode) {
  if (row.model.empty()) return {};
  const auto found = suite.models.find(row.model);
  SNUG_CHECK(found != suite.models.end(), "row {} has a model that is not in the suite", row.id);
  const ModelChoice& model = found->second;
  if (mode == Mode::Plan) return {.checkpoint = {}, .config = model.config};
  if (mode == Mode::Run && !model.checkpoint.empty())
    return {.checkpoint = model.checkpoint, .config = {}};
  if (mode == Mode::Run) return {.checkpoint = {}, .config = model.config};
  if (model.scaled_config.empty())
    throw UserError("suite {}: model {} has no small model to run scaled; give models.{}.scaled",
                    suite.name, row.model, row.model);
  return {.checkpoint = {}, .config = model.scaled_config};
}

Words recipe_words(const std::string& command, const ModelWords& model, const Settings& options) {
  Words words{command};
  if (!model.checkpoint.empty()) words.push_back(model.checkpoint);
  const std::string* recipe = find_option(options, kConfig);
  if (recipe != nullptr) {
    add(words, std::string(kConfig), *recipe);
    if (!model.config.empty()) add(words, "checkpoint_dir", "none");
  }
  if (!model.config.empty()) add(words, "model.config", model.config);
  for (const auto& [key, value] : options)
    if (key != kConfig) add(words, key, value);
  return words;
}

bool names_adapters(const Settings& options) {
  recipe::Recipe recipe;
  const std::vector<recipe::Row> rows = recipe::recipe_rows(recipe);
  return std::any_of(options.begin(), options.end(), [&](const auto& option) {
    const recipe::Row* row = recipe::find_row(rows, option_key(option.first));
    return row != nullptr && row->lora_only;
  });
}

void put_last(Settings& options, const std::string& key, const std::string& value) {
  if (!value.empty()) lay_over(options, Settings{{key, value}});
}

}  // namespace

Words plan_words(const Suite& suite, const Row& row, Mode mode, const Settings& extra) {
  Settings options = settings_of(row, mode, {});
  if (mode == Mode::Plan) put_last(options, "memory_budget", row.memory_budget);
  if (mode == Mode::Scaled) put_last(options, "memory_budget", row.scaled_memory_budget);
  lay_over(options, extra);
  // A plan takes a run for one of all weights unless something is said of adapters.
  if (row.command != "finetune_full" && find_option(options, "full") == nullptr &&
      find_option(options, kConfig) == nullptr && !names_adapters(options))
    options.emplace_back("full", "false");
  Words words = recipe_words("plan", model_words(suite, row, mode), options);
  if (mode == Mode::Plan) {
    if (!row.device.empty()) add(words, "device", row.device);
    if (!row.like.empty()) add(words, "like", row.like);
  }
  words.emplace_back("--json");
  return words;
}

Words run_words(const Suite& suite, const Row& row, Mode mode, const Settings& extra,
                const std::filesystem::path& out_dir) {
  Settings options = settings_of(row, mode, {});
  if (mode == Mode::Scaled) {
    put_last(options, "memory_budget", row.scaled_memory_budget);
    // The budget was chosen for what a CPU takes.
    if (find_option(options, "accelerator") == nullptr) options.emplace_back("accelerator", "cpu");
  }
  lay_over(options, extra);
  Words words = recipe_words(row.command, model_words(suite, row, mode), options);
  add(words, "out_dir", out_dir.string());
  return words;
}

}  // namespace snug::lab
