// SPDX-License-Identifier: Apache-2.0
#include "recipe/options/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "recipe/options/command_table.h"

namespace snug::recipe {
namespace {

constexpr int kIndent = 6;
constexpr int kMinWidth = 40;
constexpr std::ptrdiff_t kManyOptions = 40;

// Paints for a terminal, or leaves the text alone.
struct Paint {
  bool on;
  std::string bold(std::string_view text) const {
    return on ? fmt::format("\x1b[1m{}\x1b[0m", text) : std::string(text);
  }
};

// `text` in lines of at most `width`, each after `indent` spaces. A longer word gets its own line.
std::string wrapped(std::string_view text, int indent, int width) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  std::string out, line = margin;
  for (size_t at = 0; at < text.size();) {
    const size_t space = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, space - at);
    const bool empty = line.size() == margin.size();
    if (!empty && line.size() + 1 + word.size() > static_cast<size_t>(width)) {
      out += line + "\n";
      line = margin;
    } else if (!empty) {
      line += ' ';
    }
    line += word;
    at = space + 1;
  }
  return out + line + "\n";
}

std::string usage(const CommandInfo& info, const std::vector<Row>& rows) {
  std::string line = fmt::format("snug {}", info.names.front());
  for (const Row& row : rows) {
    if (!row.positional) continue;
    std::string word = row.key;
    std::transform(word.begin(), word.end(), word.begin(),
                   [](unsigned char c) { return std::toupper(c); });
    line += row.required ? " " + word : " [" + word + "]";
  }
  const bool options =
      std::any_of(rows.begin(), rows.end(), [](const Row& row) { return !row.positional; });
  if (takes_recipe(info.command)) line += " [--config FILE]";
  return options ? line + " [--OPTION VALUE]..." : line;
}

std::string default_text(const Row& row) {
  return row.automatic != nullptr && *row.automatic ? "auto" : plain_text(row);
}

std::string row_text(const Row& row, int width, const Paint& paint) {
  const std::string head = fmt::format("--{}", option_name(row));
  const std::string_view value = row.choices.empty() ? value_name(row) : std::string_view();
  std::string out =
      fmt::format("  {} {}\n", paint.bold(head),
                  value.empty() ? fmt::format("{}", fmt::join(row.choices, "|")) : value);
  std::string meaning(row.help);
  std::vector<std::string> facts;
  if (!row.required && !row.secret) facts.push_back(fmt::format("default: {}", default_text(row)));
  if (const std::string range = range_text(row); !range.empty()) facts.push_back(range);
  if (!facts.empty()) meaning += fmt::format(" [{}]", fmt::join(facts, "; "));
  out += wrapped(meaning, kIndent, width);
  return out;
}

std::string recipe_options(int width, const Paint& paint) {
  return paint.bold("Recipe") + "\n" + fmt::format("  {} FILE\n", paint.bold("--config")) +
         wrapped("read a recipe; options override it, before or after this one", kIndent, width) +
         fmt::format("  {}\n", paint.bold("--print_config")) +
         wrapped("print the resolved recipe and stop", kIndent, width) + "\n";
}

// Removes the less common of very many options; returns the line that says how to list all.
std::string keep_common(std::vector<Row>& rows, std::string_view command, int width) {
  const std::ptrdiff_t all = std::ssize(rows);
  if (all <= kManyOptions || std::ranges::count(rows, true, &Row::common) == 0) return "";
  std::erase_if(rows, [](const Row& row) { return !row.common; });
  return wrapped(
             fmt::format("These are the {} most common options; snug {} --help {} lists all {}.",
                         rows.size(), command, kAllOptions, all),
             0, width) +
         "\n";
}

std::string command_help(const CommandInfo& info, int width, const Paint& paint, HelpOf options) {
  ParsedCommand parsed;
  parsed.command = info.command;
  parsed.recipe = usual_recipe(info.command);
  std::vector<Row> rows = rows_of(parsed);
  std::string out =
      wrapped(fmt::format("snug {}: {}.", info.names.front(), info.summary), 0, width);
  if (!info.about.empty()) out += wrapped(info.about, 0, width);
  out += "\n" + paint.bold("Usage") + "\n" + wrapped(usage(info, rows), 2, width) + "\n";
  if (options == HelpOf::Common) out += keep_common(rows, info.names.front(), width);
  if (takes_recipe(info.command)) out += recipe_options(width, paint);
  std::vector<std::string_view> themes;
  for (const Row& row : rows)
    if (std::find(themes.begin(), themes.end(), row.theme) == themes.end())
      themes.push_back(row.theme);
  for (const std::string_view theme : themes) {
    out += paint.bold(theme) + "\n";
    for (const Row& row : rows)
      if (row.theme == theme) out += row_text(row, width, paint);
    out += "\n";
  }
  out += paint.bold("Examples") + "\n";
  for (const std::string_view example : info.examples) out += fmt::format("  {}\n", example);
  return out;
}

std::string program_help(int width, const Paint& paint) {
  std::string out = wrapped(
      "snug fine-tunes large language models within the memory you have, and shows where every "
      "byte goes.",
      0, width);
  out += "\n" + paint.bold("Usage") + "\n  snug COMMAND [--OPTION VALUE]...\n\n" +
         paint.bold("Commands") + "\n";
  for (const CommandInfo& info : command_table()) {
    const std::string name = fmt::format("{:<15}", info.names.front());
    out += "  " + paint.bold(name) + wrapped(info.summary, 17, width).substr(17);
  }
  out += "\n" + paint.bold("Examples") +
         "\n"
         "  snug demo\n"
         "  snug download HuggingFaceTB/SmolLM2-135M-Instruct\n"
         "  snug finetune_full checkpoints/HuggingFaceTB/SmolLM2-135M-Instruct \\\n"
         "      --data JSON --data.json_path data.json --train.max_steps 100\n"
         "  snug chat checkpoints/HuggingFaceTB/SmolLM2-135M-Instruct\n\n";
  out += wrapped(
      "snug COMMAND --help explains a command and its options. Write options with underscores or "
      "hyphens, as --key value or --key=value; flags stand alone or take true or false; null "
      "unsets a value.",
      0, width);
  out += "\n" + paint.bold("Exit codes") +
         "\n"
         "  0 done, 1 internal error, 2 error in recipe, data or files, 3 out of memory,\n"
         "  4 a row of snug lab differs from what its suite expects or explains,\n"
         "  130 interrupted by Ctrl-C\n";
  return out;
}

}  // namespace

std::string help_text(std::string_view command, int width, bool color, HelpOf options) {
  const Paint paint{color};
  width = std::max(width, kMinWidth);
  if (command.empty()) return program_help(width, paint);
  const CommandInfo* info = find_command(command);
  if (!info) throw UserError("unknown command {}; snug --help lists all commands", command);
  return command_help(*info, width, paint, options);
}

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

// The help and the aliases, without those that the text above the tables explains.
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
  return row.secret ? "none" : default_text(row);
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
      "its own before any `--optimizer.*` is set; `--data NAME` keeps the recipe's values. "
      "`--print_config`\n"
      "prints what comes of all this and stops.\n";
  for (const CommandInfo& info : command_table()) out += command_section(info);
  return out;
}

}  // namespace snug::recipe
