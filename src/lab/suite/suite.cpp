// SPDX-License-Identifier: Apache-2.0
#include "lab/suite/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "lab/suite/suite_fields.h"
#include "lab/suite/suite_rows.h"
#include "recipe/check.h"
#include "recipe/options/command_table.h"
#include "recipe/options/rows.h"
#include "recipe/parse.h"

namespace snug::lab {
namespace {

using recipe::YamlNode;

constexpr size_t kMaxSuiteBytes = size_t{1} << 20;

// A path of the file's is relative to the file.
void read_path(Fields& fields, std::string_view key, const std::filesystem::path& folder,
               std::string& out) {
  fields.read(key, out);
  if (out.empty()) return;
  out = (folder / out).lexically_normal().string();
  std::error_code error;
  if (!std::filesystem::is_regular_file(out, error))
    fields.add(key, fmt::format("{}: no such file: {}", key, out));
}

// Names in the order of the file.
std::vector<std::string> read_models(const YamlNode& node, Suite& suite, Faults& faults) {
  std::vector<std::string> order;
  if (node.kind != YamlNode::Kind::Map) {
    faults.add(node.line, "models: must be a mapping of names to {checkpoint: …, config: …}");
    return order;
  }
  const std::filesystem::path folder = suite.file.parent_path();
  for (const auto& [name, entry] : node.entries) {
    if (!is_name(name)) faults.add(entry.line, fmt::format("model \"{}\": {}", name, kNameRule));
    Fields fields(entry, fmt::format("model {}", name), faults);
    ModelChoice model;
    fields.read("checkpoint", model.checkpoint);
    read_path(fields, "config", folder, model.config);
    read_path(fields, "scaled", folder, model.scaled_config);
    fields.finish();
    if (model.config.empty())
      faults.add(entry.line,
                 fmt::format("model {}: needs config, the config.json to plan with", name));
    suite.models.emplace(name, std::move(model));
    order.push_back(name);
  }
  return order;
}

void read_name(Fields& fields, Suite& suite) {
  fields.read("suite", suite.name);
  const std::string stem = suite.file.stem().string();
  if (!is_name(suite.name))
    fields.add("suite", fmt::format("suite \"{}\": {}", suite.name, kNameRule));
  else if (suite.name != stem)
    fields.add("suite", fmt::format("suite {}: the file is named {}; give both the same name",
                                    suite.name, suite.file.filename().string()));
}

void check_all_words(const Suite& suite, const RowReader& rows, Faults& faults) {
  for (size_t i = 0; i < suite.rows.size(); ++i)
    check_words(suite, suite.rows[i], rows.line_of(i), faults);
  for (size_t i = 0; i < suite.groups.size(); ++i) {
    const Group& group = suite.groups[i];
    if (group.kind != Group::Kind::Search) continue;
    for (const int64_t value : {group.smallest, group.largest})
      check_words(suite, search_row(group, value), rows.line_of_group(i), faults);
  }
}

Suite read_tree(const YamlNode& tree, const std::filesystem::path& file, Faults& faults) {
  Suite suite;
  suite.file = file;
  Fields fields(tree, "a suite", faults);
  read_name(fields, suite);
  fields.read("title", suite.title);
  fields.read("about", suite.about);
  fields.read("source", suite.source);
  fields.read_seconds("row_timeout", suite.row_timeout_seconds);
  std::vector<std::string> models;
  if (const YamlNode* node = fields.take_said("models")) models = read_models(*node, suite, faults);
  RowReader rows(suite, std::move(models), faults);
  rows.read_defaults(fields);
  suite.device = rows.device();
  // In the order of the file, since `from` names an earlier row.
  for (const char* const section : {"rows", "matrix", "sweeps", "searches"}) fields.take(section);
  for (const auto& [key, node] : tree.entries) {
    if (key == "rows") rows.read_rows(node);
    if (key == "matrix") rows.read_matrix(node);
    if (key == "sweeps") rows.read_sweeps(node);
    if (key == "searches") rows.read_searches(node);
  }
  rows.finish();
  fields.finish();
  if (suite.rows.empty() && suite.groups.empty() && !rows.has_refused_any())
    faults.add(tree.line, "the suite has no rows; give rows, a matrix or sweeps");
  // Commands are checked only if all options are valid: otherwise every row would repeat a fault.
  if (faults.empty()) check_all_words(suite, rows, faults);
  return suite;
}

}  // namespace

Suite read_suite(const std::filesystem::path& file) {
  const std::string text = read_file(file, kMaxSuiteBytes);
  const YamlNode tree = recipe::read_yaml(text, file.string());
  if (tree.kind != YamlNode::Kind::Map)
    throw UserError("{}: there are no keys; a suite is a mapping that begins with suite: NAME",
                    file.string());
  Faults faults(file.string());
  Suite suite = read_tree(tree, file, faults);
  faults.throw_all();
  return suite;
}

const char* name(Mode mode) {
  switch (mode) {
    case Mode::Plan:
      return "plan";
    case Mode::Run:
      return "run";
    case Mode::Scaled:
      return "scaled";
  }
  return "";
}

const char* name(Expected expected) {
  switch (expected) {
    case Expected::Ok:
      return "ok";
    case Expected::OutOfMemory:
      return "oom";
    case Expected::Unknown:
      return "unknown";
  }
  return "";
}

bool Published::empty() const {
  return allocated_after_forward.empty() && peak_allocated.empty() && reserved.empty() &&
         !parameter_bytes && !iteration_seconds && !tokens_per_second && !teraflops_per_second &&
         !device_use && !device_use_spread && !epoch_seconds && !last_loss;
}

namespace {

recipe::ParsedCommand parsed(const std::vector<std::string>& words) {
  // The row's process prints the warnings.
  const LogSinkGuard quiet([](const std::string&) {});
  recipe::ParsedCommand command = recipe::parse_command_line(words);
  recipe::check_recipe(command.command, command.recipe);
  return command;
}

void check_model(const Suite& suite, const Row& row) {
  for (const char* const key : {"checkpoint_dir", "model.config"})
    if (!row.model.empty() && find_option(row.options, key) != nullptr)
      throw UserError("{}: its model {} already sets this; leave out one of the two", key,
                      row.model);
  if (row.model.empty() && !suite.models.empty() &&
      find_option(row.options, "checkpoint_dir") == nullptr &&
      find_option(row.options, "model.config") == nullptr &&
      find_option(row.options, kConfig) == nullptr)
    throw UserError("has no model; give one of the suite's");
}

// Options decide whether a plan is for full fine-tuning or adapters; for a run, the command does.
void check_same_training(const recipe::ParsedCommand& plan, const recipe::ParsedCommand& run) {
  if (plan.recipe.full != run.recipe.full)
    throw UserError(
        "command {} trains {}, but its options ask for {}; give LoRA options (lora_r, …), full, or "
        "another command",
        run.name, run.recipe.full ? "all weights" : "adapters",
        plan.recipe.full ? "all weights" : "adapters");
}

}  // namespace

void check_words(const Suite& suite, const Row& row, int line, Faults& faults) {
  if (!row.not_run.empty() && row.model.empty()) return;
  try {
    check_model(suite, row);
    const auto plan = parsed(plan_words(suite, row, Mode::Plan, {}));
    const auto run = parsed(run_words(suite, row, Mode::Run, {}, "out"));
    check_same_training(plan, run);
    const auto model = suite.models.find(row.model);
    if (model == suite.models.end() || model->second.scaled_config.empty()) return;
    parsed(plan_words(suite, row, Mode::Scaled, {}));
    parsed(run_words(suite, row, Mode::Scaled, {}, "out"));
  } catch (const UserError& error) {
    faults.add(line, fmt::format("row {}: {}", row.id, error.what()));
  }
}

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

void follow(Row& row) {
  lay_over(row.options, row.original_options);
  row.original_options.clear();
}

Settings settings_of(const Row& row, Mode mode, const Settings& extra) {
  Settings options = row.options;
  const Settings* const layers[] = {&row.plan_options, &row.run_options, &row.scaled_options};
  lay_over(options, *layers[static_cast<size_t>(mode)]);
  lay_over(options, extra);
  return options;
}

// The options for the model's files. Random weights replace the checkpoint that a row's recipe may
// name.
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

void follow_original(Suite& suite) {
  for (Row& row : suite.rows) follow(row);
  for (Group& group : suite.groups) follow(group.base);
}

Words plan_words(const Suite& suite, const Row& row, Mode mode, const Settings& extra) {
  Settings options = settings_of(row, mode, {});
  if (mode == Mode::Plan) put_last(options, "memory_budget", row.memory_budget);
  if (mode == Mode::Scaled) put_last(options, "memory_budget", row.scaled_memory_budget);
  lay_over(options, extra);
  // Plans are for full fine-tuning unless options for adapters are given.
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
