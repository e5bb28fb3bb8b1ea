// SPDX-License-Identifier: Apache-2.0
#include "recipe/import/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "recipe/faults.h"
#include "recipe/import/draft.h"
#include "recipe/options/rows.h"

namespace snug::recipe {
namespace {

bool has_sign(const YamlNode& tree, std::string_view sign) {
  if (const size_t equals = sign.find('='); equals != std::string_view::npos) {
    const YamlNode* node = find_at(tree, sign.substr(0, equals));
    const auto words = words_of(sign.substr(equals + 1));
    const auto says = [&](const YamlNode& value) {
      return std::ranges::count(words, value.text) > 0;
    };
    return node != nullptr && (says(*node) || std::ranges::any_of(node->items, says));
  }
  if (find_at(tree, sign) != nullptr) return true;
  // "_component_" stands one level down.
  return std::ranges::any_of(tree.entries, [&](const auto& entry) {
    return sign.starts_with('_') && find_in(entry.second, sign) != nullptr;
  });
}

// "recipe.yaml:12: lora_r" -> "line 12: lora_r"; "recipe.yaml: lora_r (…)" -> "lora_r (…)".
std::string place(const std::string& where, const std::string& file) {
  if (!where.starts_with(file + ":")) return where;
  const std::string rest = where.substr(file.size() + 1);
  return rest.starts_with(' ') ? rest.substr(1) : "line " + rest;
}

std::string remarks(const std::vector<ImportRemark>& list, const std::string& file,
                    std::string_view title) {
  std::string out;
  for (const ImportRemark& remark : list)
    out += fmt::format("#   {}: {}\n", place(remark.where, file), remark.why);
  return out.empty() ? out : fmt::format("\n# {}:\n{}", title, out);
}

}  // namespace

std::optional<Imported> import_recipe(YamlNode tree, const std::string& file) {
  for (const Program& program : programs()) {
    const bool is_its = std::ranges::any_of(
        program.signs, [&](std::string_view sign) { return has_sign(tree, sign); });
    if (!is_its) continue;
    if (program.prepare != nullptr) program.prepare(tree, program);
    Draft draft(program, file);
    draft.read(tree);
    return draft.take();
  }
  return std::nullopt;
}

std::string import_summary(const Imported& imported, const std::string& file) {
  const auto count = [](size_t number, std::string_view verb) {
    return fmt::format("{} key{} {}", number, number == 1 ? "" : "s", verb);
  };
  return fmt::format(
      "Recipe   {} is one of {}: {}, {}; snug import {} shows them", file, imported.program,
      count(imported.differing.size(), imported.differing.size() == 1 ? "differs" : "differ"),
      count(imported.idle.size(), imported.idle.size() == 1 ? "has no effect" : "have no effect"),
      file);
}

std::string print_imported(const Imported& imported, const std::string& file) {
  Recipe recipe, defaults;
  const OptionTable table{.rows = recipe_rows(recipe),
                          .defaults = recipe_rows(defaults),
                          .foreign = {},
                          .foreign_home = {}};
  Outcome outcome;
  apply_settings(imported.settings, table, true, outcome);
  throw_faults(outcome.faults, "");
  std::string out =
      fmt::format("# From {}, a recipe of {}, by snug import.\n", file, imported.program);
  // Single keys first: a group may go on until the end. Rows of one group may lie apart.
  std::vector<std::pair<std::string, std::string>> groups;
  for (const Row& row : table.rows) {
    const auto setting = std::ranges::find_if(imported.settings, [&](const Setting& candidate) {
      return find_row(table.rows, candidate.key) == &row;
    });
    if (setting == imported.settings.end()) continue;
    const size_t dot = row.key.find('.');
    const std::string key = dot == std::string::npos ? row.key : row.key.substr(dot + 1);
    const std::string line =
        fmt::format("{}: {}  # {}\n", key, yaml_text(row), place(setting->where, file));
    if (dot == std::string::npos) {
      out += line;
      continue;
    }
    const std::string name = row.key.substr(0, dot);
    auto group = std::ranges::find(groups, name, &std::pair<std::string, std::string>::first);
    if (group == groups.end()) group = groups.insert(groups.end(), {name, ""});
    group->second += "  " + line;
  }
  for (const auto& [name, lines] : groups) out += name + ":\n" + lines;
  std::vector<ImportRemark> refused;
  for (const ImportRefusal& refusal : imported.refused) refused.push_back(refusal.remark);
  return out + remarks(refused, file, "Refused; settle these before training") +
         remarks(imported.differing, file, "Carried over, but not quite the same") +
         remarks(imported.idle, file, "Without effect here");
}

void check_imported(const Imported& imported) {
  std::vector<std::string> faults;
  for (const ImportRefusal& refusal : imported.refused) faults.push_back(refusal.text());
  throw_faults(faults, "");
}

Imported import_file(const std::string& file) {
  const YamlNode tree = read_yaml(read_file(file, kMaxRecipeBytes), file);
  std::optional<Imported> imported = import_recipe(tree, file);
  if (imported) return std::move(*imported);
  std::vector<std::string_view> names;
  for (const Program& program : programs())
    if (!program.name.ends_with(')')) names.push_back(program.name);
  throw UserError("{}: not a recipe of {}; snug takes its own and LitGPT's recipes as they are",
                  file, fmt::join(names, ", "));
}

}  // namespace snug::recipe
