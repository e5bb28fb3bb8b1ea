// SPDX-License-Identifier: Apache-2.0
#include "recipe/print.h"

#include <type_traits>

#include "base/error.h"
#include "base/text.h"
#include "recipe/options/rows.h"
#include "recipe/settings.h"
#include "recipe/tables/objectives.h"
#include "recipe/tables/optimizers.h"

namespace snug::recipe {
namespace {

// Arguments of a class stand below init_args in LitGPT's form.
bool has_class(std::string_view group) { return group == "data" || group == "optimizer"; }

bool is_shown(const Row& row, const Recipe& recipe) {
  if (row.secret || (row.lora_only && !recipe.lora.enabled)) return false;
  const std::string_view key = row.key;
  if (key.starts_with("objective.") && key != "objective.name")
    return objective_takes(recipe.objective.name, key.substr(key.find('.') + 1));
  return !key.starts_with("optimizer.") || key == "optimizer.class_path" ||
         optimizer_takes(recipe.optimizer.name, key.substr(key.find('.') + 1));
}

// The rows that count for this recipe, bound to `recipe`.
std::vector<Row> shown_rows(Recipe& recipe) {
  std::vector<Row> rows = recipe_rows(recipe);
  std::erase_if(rows, [&](const Row& row) { return !is_shown(row, recipe); });
  return rows;
}

nlohmann::json json_value(const Row& row) {
  if (!holds_value(row)) return nullptr;
  if (row.kind == TextKind::Tree) return nlohmann::json::parse(plain_text(row), nullptr, false);
  return std::visit(
      [](auto slot) -> nlohmann::json {
        if constexpr (std::is_same_v<decltype(slot), PairSlot>) {
          return nlohmann::json::array({*slot.first, *slot.second});
        } else if constexpr (requires { slot->value(); }) {
          return **slot;
        } else {
          return *slot;
        }
      },
      row.slot);
}

// "data" + the rows of that group, as YAML lines.
std::string yaml_group(const std::vector<Row>& rows, const std::string& group) {
  std::string out = group + ":\n";
  std::string indent = "  ";
  for (const Row& row : rows) {
    if (!row.key.starts_with(group + ".")) continue;
    out += indent + row.key.substr(group.size() + 1) + ": " + yaml_text(row) + "\n";
    if (has_class(group) && row.key == group + ".class_path") {
      out += "  init_args:\n";
      indent = "    ";
    }
  }
  return out;
}

}  // namespace

std::string print_recipe_yaml(const Recipe& recipe) {
  Recipe copy = recipe;
  const std::vector<Row> rows = shown_rows(copy);
  std::string out;
  std::vector<std::string> groups;
  for (const Row& row : rows) {
    const size_t dot = row.key.find('.');
    if (dot == std::string::npos) {
      out += row.key + ": " + yaml_text(row) + "\n";
      continue;
    }
    const std::string group = row.key.substr(0, dot);
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  for (const std::string& group : groups) out += yaml_group(rows, group);
  return out;
}

nlohmann::json recipe_json(const Recipe& recipe) {
  Recipe copy = recipe;
  nlohmann::json out = nlohmann::json::object();
  for (const Row& row : shown_rows(copy)) {
    const size_t dot = row.key.find('.');
    if (dot == std::string::npos)
      out[row.key] = json_value(row);
    else
      out[row.key.substr(0, dot)][row.key.substr(dot + 1)] = json_value(row);
  }
  return out;
}

std::string print_command(std::span<const std::string> words) {
  Recipe recipe;
  const std::vector<Row> rows = recipe_rows(recipe);
  std::string out = "snug";
  bool hide = false;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    const bool option = word.starts_with("--");
    const Row* row = option ? find_row(rows, canonical_key(word.substr(2, equals - 2))) : nullptr;
    const bool names_secret = row != nullptr && row->secret;
    if (names_secret && equals != std::string::npos)
      out += " " + word.substr(0, equals) + "=***";
    else
      out += " " + (hide && !option ? std::string("***") : shell_quoted(word));
    hide = names_secret && equals == std::string::npos;
  }
  return out;
}

std::map<std::string, std::string> differences(Recipe from, Recipe to) {
  const std::vector<Row> before = recipe_rows(from);
  const std::vector<Row> after = recipe_rows(to);
  std::map<std::string, std::string> values;
  for (size_t i = 0; i < before.size(); ++i) {
    const std::string value = plain_text(after[i]);
    if (plain_text(before[i]) != value) values[after[i].key] = value;
  }
  return values;
}

void apply_differences(Recipe& recipe, const std::map<std::string, std::string>& values) {
  Recipe defaults;
  const std::vector<Row> rows = recipe_rows(recipe);
  const std::vector<Row> fallback = recipe_rows(defaults);
  for (const auto& [key, value] : values) {
    const Row* row = find_row(rows, key);
    SNUG_CHECK(row != nullptr, "no key {}", key);
    const std::string fault =
        store(*row, {.kind = Value::Kind::Text, .text = value}, *find_row(fallback, key));
    SNUG_CHECK(fault.empty(), "{} = {}: {}", key, value, fault);
  }
}

}  // namespace snug::recipe
