// SPDX-License-Identifier: Apache-2.0
#include "recipe/parse.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/program.h"
#include "base/text.h"
#include "recipe/batches.h"
#include "recipe/check.h"
#include "recipe/data_sources.h"
#include "recipe/faults.h"
#include "recipe/import/import.h"
#include "recipe/import/script.h"
#include "recipe/import/script_recipe.h"
#include "recipe/mesh.h"
#include "recipe/numbers.h"
#include "recipe/options/command_table.h"
#include "recipe/options/names.h"
#include "recipe/options/rows.h"
#include "recipe/settings.h"
#include "recipe/tables/objectives.h"
#include "recipe/tables/optimizers.h"

namespace snug::recipe {
namespace {

// Commands of LitGPT that snug lacks, with what to use instead.
constexpr std::array<std::array<std::string_view, 2>, 13> kElsewhere = {{
    {"convert_to_litgpt", "snug reads Hugging Face directories directly; see snug convert"},
    {"convert_from_litgpt", "use snug convert --to hf"},
    {"convert_pretrained_checkpoint", "use snug convert --to litgpt"},
    {"finetune_adapter", "not supported yet; snug finetune trains LoRA adapters"},
    {"finetune_adapter_v2", "not supported yet; snug finetune trains LoRA adapters"},
    {"generate_full", "use snug generate"},
    {"generate_adapter", "not supported yet; snug generate takes LoRA adapters"},
    {"generate_adapter_v2", "not supported yet; snug generate takes LoRA adapters"},
    {"generate_sequentially", "use snug generate; its model must fit one device"},
    {"generate_speculatively", "use snug generate; it drafts no tokens"},
    {"generate_tp", "use snug generate; its model must fit one device"},
    {"pretrain", "this version only fine-tunes; --model.config starts from random weights"},
    {"serve", "not supported yet; snug generate and snug chat run a model here"},
}};

[[noreturn]] void refuse_command(const std::string& name) {
  for (const auto& [known, instead] : kElsewhere)
    if (name == known) throw UserError("snug has no command {}: {}", name, instead);
  const std::string near = nearest_name(name, command_names());
  throw UserError(
      "unknown command {}{}", name,
      near.empty() ? "; snug --help lists all commands" : fmt::format("; did you mean {}?", near));
}

// An option that contradicts the positional argument of the same row; nullptr: none.
const Setting* contradiction(const Words& words, const Row& row, const Setting& positional) {
  for (const Setting& setting : words.settings) {
    const bool same_row = row.key == setting.key || std::ranges::count(row.aliases, setting.key);
    const bool unset = setting.value.kind == Value::Kind::Null || is_null_word(setting.value.text);
    if (same_row && !unset && setting.value.text != positional.value.text) return &setting;
  }
  return nullptr;
}

// Whether the last positional argument is a text.
bool takes_text(const std::vector<Row>& rows, const std::vector<std::string>& takers) {
  if (takers.empty()) return false;
  const Row& last = *find_row(rows, takers.back());
  return last.kind == TextKind::Verbatim && !std::holds_alternative<ListSlot>(last.slot);
}

// The message for a text given without quotes, as the words from `first` on.
std::string words_without_quotes(const Words& words, size_t first, const std::string& command) {
  std::string before, text;
  for (size_t i = 0; i < words.positionals.size(); ++i) {
    std::string& part = i < first ? before : text;
    const std::string& word = words.positionals[i].value.text;
    part += (part.empty() ? "" : " ") + (i < first ? shell_quoted(word) : word);
  }
  return fmt::format("the prompt is several arguments; put it in quotes: snug {} {} {}", command,
                     before, shell_quoted(text));
}

// Assigns positional arguments to their rows, in order; a list takes the rest.
void place_positionals(Words& words, const std::vector<Row>& rows, const std::string& command,
                       std::vector<std::string>& faults) {
  std::vector<std::string> takers;
  bool takes_many = false;  // the last one
  for (const Row& row : rows)
    if (row.positional) {
      takers.push_back(row.key);
      takes_many = std::holds_alternative<ListSlot>(row.slot);
    }
  if (words.positionals.size() > takers.size() && takes_text(rows, takers)) {
    faults.push_back(words_without_quotes(words, takers.size() - 1, command));
    words.positionals.resize(takers.size() - 1);
  }
  for (size_t i = 0; i < words.positionals.size(); ++i) {
    Setting& setting = words.positionals[i];
    if (i >= takers.size() && !takes_many) {
      faults.push_back(fmt::format(
          "unexpected argument {}; snug {} takes no positional arguments{}{}", setting.where,
          command, takers.empty() ? "" : " except ", fmt::join(takers, " and ")));
      continue;
    }
    setting.key = takers[std::min(i, takers.size() - 1)];
    const Row& row = *find_row(rows, setting.key);
    if (const Setting* other = contradiction(words, row, setting);
        other && !std::holds_alternative<ListSlot>(row.slot)) {
      faults.push_back(fmt::format("{} is given twice: {} as an argument and {} by {}; keep one",
                                   row.key, setting.value.text, other->value.text, other->where));
      continue;
    }
    setting.where = setting.key;
    words.settings.push_back(std::move(setting));
  }
}

void check_required(const std::vector<Row>& rows, const std::string& command,
                    std::vector<std::string>& faults) {
  const auto is_faulty = [&](const Row& row) {
    return std::ranges::any_of(
        faults, [&](const std::string& fault) { return fault.starts_with(row.key + ": "); });
  };
  for (const Row& row : rows)
    if (row.required && !holds_value(row) && !is_faulty(row))
      faults.push_back(fmt::format("snug {} needs {}: {}", command,
                                   row.positional ? row.key : "--" + option_name(row), row.help));
}

// An option of adapters, or an adapter's folder as the model.
bool names_adapters(const std::vector<Setting>& settings) {
  Recipe recipe;
  const std::vector<Row> rows = recipe_rows(recipe);
  return std::any_of(settings.begin(), settings.end(), [&](const Setting& setting) {
    const Row* row = find_row(rows, setting.key);
    if (row == nullptr) return false;
    std::error_code ignored;
    return row->lora_only ||
           (row->key == "checkpoint_dir" &&
            std::filesystem::exists(
                std::filesystem::path(setting.value.text) / "adapter_config.json", ignored));
  });
}

// use_qlora asks for adapters, whatever use_lora says.
bool asks_for_qlora(const std::vector<Setting>& file, const std::vector<Setting>& options) {
  bool asks = false;
  for (const auto* source : {&file, &options})
    for (const Setting& setting : *source)
      if (setting.key == "use_qlora") asks = parse_bool(setting.value.text).value_or(false);
  return asks;
}

// Whether --full or full: true asks for the defaults of full fine-tuning. plan does so too, unless
// adapters are named.
bool wants_full(Command command, const std::vector<Setting>& file,
                const std::vector<Setting>& options) {
  bool full = command == Command::Plan && !names_adapters(file) && !names_adapters(options);
  for (const auto* source : {&file, &options})
    for (const Setting& setting : *source) {
      if (setting.key == "full") full = parse_bool(setting.value.text).value_or(false);
      if (setting.key == "use_lora") full = !parse_bool(setting.value.text).value_or(true);
    }
  return full && !asks_for_qlora(file, options);
}

// Finds the data's file or folder; returns the faults.
std::vector<std::string> resolve_show_data(ShowDataOptions& o, const std::set<std::string>& given) {
  o.given_keys = given;
  if (names_several(o.file) && o.data.sources.empty()) {
    o.data.class_path = kMix;
    o.data.sources = sources_named(std::exchange(o.file, ""), "file");
  }
  if (!given.contains("data.class_path") && is_text_file(o.file)) o.data.class_path = "TextFiles";
  if (!given.contains("data.class_path") && names_hub_set(o.file)) o.data.class_path = "HFDataset";
  const bool is_folder = o.data.class_path == "ImageFolder" || o.data.class_path == "HFDataset" ||
                         o.data.class_path == "TextFiles";
  std::string& path = is_folder ? o.data.path : o.data.json_path;
  if (!o.file.empty() && !path.empty())
    return {fmt::format("{} and {} {} both name the data; keep one", o.file,
                        is_folder ? "--data.path" : "--data.json_path", path)};
  if (!o.file.empty()) path = o.file;
  resolve_data(o.data, given);
  if (o.data.class_path == "Synthetic")
    return {"--data Synthetic: its samples are random, so there is nothing to show"};
  if (o.data.class_path == "JSON" && path.empty())
    return {"snug data show needs the data: snug data show rows.jsonl --model MODEL"};
  return data_faults(o.data, given);
}

// Names such as deepspeed_stage_2_offload set two options: strategy and optimizer_offload.
void resolve_strategy(Recipe& recipe) {
  static constexpr std::string_view kOffload = "_offload";
  std::string& name = recipe.strategy;
  if (name.ends_with(kOffload)) {
    name.erase(name.size() - kOffload.size());
    if (recipe.given_keys.insert("optimizer_offload").second) recipe.optimizer_offload = "cpu";
  }
  // Without `devices` the mesh gives their number.
  MeshShape shape;
  if (recipe.mesh.empty() || recipe.given("devices") || !read_mesh(recipe.mesh, shape).empty())
    return;
  if (shape.num_ranks() % recipe.num_nodes == 0)
    recipe.devices = fmt::format("{}", shape.num_ranks() / recipe.num_nodes);
}

// LitGPT's recipes may name an online logger, which snug does not have.
void resolve_logger(Recipe& recipe) {
  if (std::ranges::count(online_loggers(), recipe.logger_name) == 0) return;
  warn(
      "logger_name = {}: snug has no online loggers; it writes metrics.csv instead (csv), or event "
      "files with --logger_name tensorboard",
      recipe.logger_name);
  recipe.logger_name = "csv";
}

// Computes all values that depend on others.
void resolve_recipe(Recipe& recipe) {
  resolve_data(recipe.data, recipe.given_keys);
  // One seed governs all there is. LitGPT's two defaults differ.
  if (!recipe.given("data.seed") && recipe.seed != Recipe{}.seed) recipe.data.seed = recipe.seed;
  recipe.lora.enabled = !recipe.full;
  // All weights of a trained model want a smaller step than adapters, or than random weights.
  const bool is_adam =
      recipe.optimizer.name != OptimizerName::Sgd && recipe.optimizer.lr == OptimizerOptions{}.lr;
  if (recipe.model.config.empty() && is_adam && !recipe.given("optimizer.lr"))
    recipe.optimizer.lr = usual_rate(recipe.objective, recipe.full);
  // What is compared with the model before training is computed as that is.
  if (compares_answers(recipe.objective.name)) {
    if (!recipe.given("lora_dropout")) recipe.lora.dropout = 0;
    if (!recipe.given("model.dropout")) recipe.model.dropout = 0;
  }
  TrainOptions& train = recipe.train;
  if (train.lr_warmup_fraction && !recipe.given("train.lr_warmup_steps")) train.lr_warmup_steps = 0;
  if (train.min_lr > recipe.optimizer.lr) {
    if (recipe.given("train.min_lr"))
      warn(
          "train.min_lr = {} is above optimizer.lr = {}: the learning rate stays at {} after the "
          "warm-up; --train.min_lr 0 lets it fall",
          train.min_lr, recipe.optimizer.lr, recipe.optimizer.lr);
    train.min_lr = recipe.given("train.min_lr") ? recipe.optimizer.lr : recipe.optimizer.lr / 10;
  }
  resolve_logger(recipe);
  resolve_optimizer(recipe);
  resolve_strategy(recipe);
  resolve_batches(recipe);
}

OptionTable table_of(ParsedCommand& parsed, ParsedCommand& defaults) {
  OptionTable table{
      .rows = rows_of(parsed), .defaults = rows_of(defaults), .foreign = {}, .foreign_home = {}};
  if (parsed.command == Command::FinetuneFull) {
    table.foreign = recipe_rows(parsed.recipe);
    std::erase_if(table.foreign, [](const Row& row) { return !row.lora_only; });
    table.foreign_home = "finetune";
  }
  return table;
}

// Recipes of other trainers set both bf16 and fp16, one of them to false.
void drop_idle_flags(std::vector<Setting>& settings) {
  std::erase_if(settings, [](const Setting& setting) {
    const bool is_flag = setting.key == "bf16" || setting.key == "fp16";
    return is_flag && (setting.value.text == "auto" || parse_bool(setting.value.text) == false);
  });
}

void fill(ParsedCommand& parsed, Words words, const std::vector<Setting>& file,
          std::vector<std::string> faults) {
  const bool full = wants_full(parsed.command, file, words.settings);
  const bool qlora = asks_for_qlora(file, words.settings);
  parsed.recipe = default_recipe(parsed.command, full);
  ParsedCommand defaults = parsed;
  const OptionTable table = table_of(parsed, defaults);
  Outcome outcome{.given = {}, .faults = std::move(faults)};
  std::vector<Setting> of_file = file;
  const bool reads_data = std::ranges::count(table.rows, "data.class_path", &Row::key) > 0;
  for (auto* settings : {&of_file, &words.settings}) {
    drop_idle_flags(*settings);
    if (reads_data) take_data_files(*settings);
  }
  replace_data(of_file, words.settings);
  // The word none unsets other options; here it says that a quantized folder is not to stay so.
  const auto says_none = [](const Setting& setting) {
    return setting.key == "quantize" && setting.value.text == "none";
  };
  const bool takes_numbers =
      std::ranges::any_of(of_file, says_none) || std::ranges::any_of(words.settings, says_none);
  apply_settings(std::move(of_file), table, true, outcome);
  for (const Setting& setting : words.settings)
    if (setting.key.starts_with("data.") && has_own(parsed.recipe.data, setting.key))
      warn("{}: a source of data.sources has its own, which counts there", setting.where);
  apply_settings(std::move(words.settings), table, false, outcome);
  if (takes_numbers) outcome.given.insert("quantize");
  const bool has_recipe = takes_recipe(parsed.command);
  if (!has_recipe) check_required(table.rows, parsed.name, outcome.faults);
  if (parsed.command == Command::Evaluate) {
    resolve_data(parsed.evaluate.data, outcome.given);
    parsed.evaluate.mask_prompt_given = outcome.given.contains("data.mask_prompt");
    if (!parsed.evaluate.data.sources.empty())
      outcome.faults.emplace_back(
          "data.sources: snug evaluate measures one data set at a time; give them one after the "
          "other");
    for (std::string& fault : data_faults(parsed.evaluate.data, outcome.given))
      outcome.faults.push_back(std::move(fault));
  }
  if (parsed.command == Command::Data)
    for (std::string& fault : resolve_show_data(parsed.show_data, outcome.given))
      outcome.faults.push_back(std::move(fault));
  throw_faults(outcome.faults, "");
  if (!has_recipe) return;
  if (qlora) parsed.recipe.full = false;
  parsed.recipe.given_keys = std::move(outcome.given);
  resolve_recipe(parsed.recipe);
}

YamlNode read_recipe_file(const std::filesystem::path& file) {
  const std::string text = read_file(shipped_file(file), kMaxRecipeBytes);
  const bool is_script =
      file.extension() == ".py" || (file.extension() == ".txt" && has_settings(text));
  const YamlNode tree =
      is_script ? read_script_recipe(text, file.string()) : read_yaml(text, file.string());
  if (tree.kind != YamlNode::Kind::Map && tree.kind != YamlNode::Kind::Null)
    throw UserError(
        "{}:{}: there are no keys; a recipe consists of lines such as «precision: bf16-true»",
        file.string(), tree.line);
  return tree;
}

// Whether a setting of the command line settles what the file's key would have said.
bool settles(const Words& words, Command command, const std::string& ours) {
  if (ours == "data" && command == Command::Plan) return true;  // needs no data
  return !ours.empty() && std::ranges::any_of(words.settings, [&](const Setting& setting) {
    Recipe recipe;
    const std::vector<Row> rows = recipe_rows(recipe);
    const Row* row = find_row(rows, setting.key);
    return row != nullptr && (row->key == ours || row->key.starts_with(ours + "."));
  });
}

// The settings of a recipe, which may be another program's.
std::vector<Setting> recipe_settings(ParsedCommand& parsed, const Words& words,
                                     std::vector<std::string>& faults) {
  const YamlNode tree = read_recipe_file(words.config);
  std::optional<Imported> imported = import_recipe(tree, words.config);
  if (!imported && tree.kind == YamlNode::Kind::Null) return {};
  if (!imported) return settings_of_tree(tree, "", words.config);
  parsed.import_note = import_summary(*imported, words.config);
  parsed.plan.recipe_has_liger = imported->has_liger;
  parsed.plan.recipe_deepspeed = imported->deepspeed;
  for (const ImportRefusal& refusal : imported->refused) {
    if (parsed.command == Command::Data && !refusal.ours.starts_with("data")) continue;
    if (!settles(words, parsed.command, refusal.ours)) faults.push_back(refusal.text());
  }
  return std::move(imported->settings);
}

bool is_recipe_name(std::string_view word) {
  return word.ends_with(".yaml") || word.ends_with(".yml") || word.ends_with(".py");
}

// A recipe given where the model is expected: snug plan recipe.yaml.
void take_recipe_argument(Words& words) {
  if (!words.config.empty() || words.positionals.empty()) return;
  const std::string& word = words.positionals[0].value.text;
  const bool is_json = word.ends_with(".json") && std::filesystem::is_regular_file(word);
  if (!is_recipe_name(word) && !(is_json && import_recipe(read_recipe_file(word), word))) return;
  words.config = word;
  words.positionals.erase(words.positionals.begin());
}

// A recipe given where the rows are expected: snug data show recipe.yaml.
void take_recipe_of_rows(Words& words) {
  const auto recipe = std::ranges::find_if(words.positionals, [](const Setting& positional) {
    return is_recipe_name(positional.value.text);
  });
  if (recipe == words.positionals.end()) return;
  words.config = recipe->value.text;
  words.positionals.erase(recipe);
}

// snug data rows.jsonl: the one action need not be said.
void add_only_action(Words& words) {
  const bool is_said = words.positionals.size() > 1 ||
                       (!words.positionals.empty() && words.positionals[0].value.text == "show") ||
                       std::ranges::count(words.settings, "action", &Setting::key) > 0;
  if (is_said) return;
  words.positionals.insert(words.positionals.begin(),
                           {{}, {.kind = Value::Kind::Text, .text = "show", .items = {}}, "show"});
}

// Options that are not the demo's own are passed to the finetune command, as typed.
void hand_on(ParsedCommand& parsed, Words& words, const std::vector<std::string>& typed,
             const std::vector<Row>& own) {
  const std::vector<Row> accepted = accepted_rows(parsed);
  for (const Words::Option& option : words.options) {
    if (find_row(own, option.key)) continue;
    const std::string near = find_row(accepted, option.key) ? "" : near_key(option.key, own);
    if (!near.empty())
      throw UserError("{}: unknown key; did you mean --{}?", typed[option.begin], near);
    parsed.demo.finetune_words.insert(parsed.demo.finetune_words.end(),
                                      typed.begin() + static_cast<std::ptrdiff_t>(option.begin),
                                      typed.begin() + static_cast<std::ptrdiff_t>(option.end));
  }
  parsed.demo.lora = names_adapters(words.settings);
  parsed.demo.lora_is_auto = !parsed.demo.lora;
  std::erase_if(words.settings,
                [&](const Setting& setting) { return find_row(own, setting.key) == nullptr; });
  words.config.clear();
  words.print_config = false;
}

ParsedCommand parse_words(Command command, const std::string& name,
                          const std::vector<std::string>& options) {
  ParsedCommand parsed;
  parsed.command = command;
  parsed.name = name;
  const std::vector<Row> rows = rows_of(parsed);
  Words words = read_words(options, accepted_rows(parsed));
  parsed.help = words.help;
  parsed.help_all = words.help_all;
  if (parsed.help) return parsed;
  if (command == Command::Demo) hand_on(parsed, words, options, rows);
  parsed.print_config = words.print_config;
  if (takes_recipe(command)) take_recipe_argument(words);
  if (!takes_recipe(command) && (words.print_config || !words.config.empty()))
    throw UserError(
        "snug {} takes no recipe; --config and --print_config belong to finetune and plan", name);
  std::vector<std::string> faults;
  if (command == Command::Data) add_only_action(words);
  if (command == Command::Data) take_recipe_of_rows(words);
  place_positionals(words, rows, name, faults);
  parsed.plan.names_folder =
      std::ranges::count(words.settings, "checkpoint_dir", &Setting::key) > 0;
  std::vector<Setting> file;
  if (!words.config.empty()) file = recipe_settings(parsed, words, faults);
  // Of a recipe's keys, those that say what its rows become.
  if (command == Command::Data)
    std::erase_if(file, [&](const Setting& setting) { return !find_row(rows, setting.key); });
  fill(parsed, std::move(words), file, std::move(faults));
  return parsed;
}

}  // namespace

ParsedCommand parse_command_line(std::span<const std::string> words) {
  ParsedCommand parsed;
  if (words.empty() || words[0] == "--help" || words[0] == "-h") {
    parsed.help = true;
    return parsed;
  }
  const std::string name = words[0] == "--version" ? "version" : words[0];
  const CommandInfo* info = find_command(name);
  if (!info) refuse_command(name);
  return parse_words(info->command, name, {words.begin() + 1, words.end()});
}

}  // namespace snug::recipe
