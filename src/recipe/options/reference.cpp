// docs/reference/options.md, from the same rows as --help.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "recipe/options/command_table.h"
#include "recipe/options/help.h"

namespace snug::recipe {
namespace {

// A bar would end the table's cell.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string values_of(const Row& row) {
  if (!row.choices.empty()) return fmt::format("{}", fmt::join(row.choices, ", "));
  std::string text(value_name(row));
  if (is_flag(row)) return row.automatic != nullptr ? "true, false, auto" : "true, false";
  const std::string range = range_text(row);
  return range.empty() ? text : text + " " + range;
}

// Keys of other programs; those that are said in the text above the tables are not repeated.
std::string meaning_of(const Row& row) {
  std::vector<std::string> others;
  for (const std::string& alias : row.aliases)
    if (!row.key.starts_with(alias + ".") && alias != row.shown)
      others.push_back(fmt::format("`{}`", alias));
  if (others.empty()) return cell(row.help);
  return fmt::format("{} (also {})", cell(row.help), fmt::join(others, ", "));
}

std::string default_of(const Row& row) {
  if (row.required) return "required";
  return row.secret ? "none" : plain_text(row);
}

std::string command_section(const CommandInfo& info) {
  ParsedCommand parsed;
  parsed.command = info.command;
  parsed.recipe = usual_recipe(info.command);
  std::string out = fmt::format("\n## snug {}\n\n{}. {}\n", fmt::join(info.names, ", snug "),
                                info.summary, info.about);
  std::string_view theme;
  for (const Row& row : rows_of(parsed)) {
    if (row.theme != theme) {
      theme = row.theme;
      out += fmt::format("\n### {}\n\n| option | values | default | meaning |\n|---|---|---|---|\n",
                         theme);
    }
    out += fmt::format("| `--{}` | {} | {} | {} |\n", option_name(row), cell(values_of(row)),
                       cell(default_of(row)), meaning_of(row));
  }
  return out;
}

}  // namespace

std::string reference_page() {
  std::string out =
      "<!-- SPDX-License-Identifier: Apache-2.0 -->\n"
      "# Options\n\n"
      "Every command and option with its values and default. This page is written from the "
      "program's own\n"
      "option tables; a test compares the two.\n\n"
      "Options are written `--key value` or `--key=value`, with underscores or hyphens. Flags "
      "stand alone or\n"
      "take `true` or `false`. `null` or an empty value unsets. A key of the recipe file is an "
      "option of the\n"
      "same name, nested keys joined by dots (`train: {max_steps: 5}` is `--train.max_steps 5`); "
      "`init_args`\n"
      "may be written or left out. Defaults come first, then the file of `--config`, then the "
      "options from\n"
      "left to right. `--optimizer NAME` drops the recipe's values of another class and loads the "
      "defaults of\n"
      "its own before any `--optimizer.*` is set; `--data NAME` keeps the recipe's values.\n";
  for (const CommandInfo& info : command_table()) out += command_section(info);
  return out;
}

}  // namespace snug::recipe
