// Completion scripts for bash, zsh and fish, from the option tables: commands, options, the choices
// of an option, and files or directories where a path is meant.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/error.h"
#include "recipe/options/command_table.h"
#include "recipe/options/help.h"

namespace snug::recipe {
namespace {

enum class Argument { Flag, Choice, File, Directory, Any };

struct Option {
  std::string name;  // without dashes
  std::string help;
  Argument argument = Argument::Any;
  std::vector<std::string> choices;
};

struct Completed {
  std::string name;
  std::string summary;
  std::vector<Option> options;
  std::vector<std::string> words;  // choices of the first bare word; empty: files
  // The words after the first, for each word that may be the first; empty: files.
  std::vector<std::pair<std::string, std::vector<std::string>>> later;
};

bool has_upper(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return std::isupper(c); });
}

Option option_of(const Row& row) {
  Option option{option_name(row), std::string(row.help), Argument::Any, row.choices};
  // In an open list, capitals stand for what the user fills in: every:K, DIR.
  if (row.open) std::erase_if(option.choices, has_upper);
  if (is_flag(row)) {
    option.argument = Argument::Flag;
    option.choices = {"true", "false"};
    if (row.automatic != nullptr) option.choices.emplace_back("auto");
  } else if (!option.choices.empty()) {
    option.argument = Argument::Choice;
  } else if (row.kind == TextKind::File) {
    option.argument = Argument::File;
  } else if (row.kind == TextKind::Directory) {
    option.argument = Argument::Directory;
  }
  return option;
}

void add_words(const Row& row, bool is_first, Completed& command) {
  if (is_first) {
    command.words = row.choices;
    return;
  }
  for (const std::string& first : command.words) {
    std::vector<std::string> words =
        row.offered_after != nullptr ? row.offered_after(first) : row.choices;
    if (!words.empty()) command.later.emplace_back(first, std::move(words));
  }
}

std::vector<Completed> completed_commands() {
  std::vector<Completed> out;
  for (const CommandInfo& info : command_table()) {
    for (const std::string_view name : info.names) {
      Completed command{std::string(name), std::string(info.summary), {}, {}};
      ParsedCommand parsed;
      parsed.command = info.command;
      int num_words = 0;
      for (const Row& row : accepted_rows(parsed)) {
        if (row.positional) add_words(row, ++num_words == 1, command);
        // A text is as often given by its option.
        if (!row.positional || row.kind == TextKind::Verbatim)
          command.options.push_back(option_of(row));
      }
      if (takes_recipe(info.command)) {
        command.options.push_back({"config", "read a recipe", Argument::File, {}});
        command.options.push_back(
            {"print_config", "print the resolved recipe", Argument::Flag, {}});
      }
      command.options.push_back({"help", "explain the command", Argument::Flag, {}});
      out.push_back(std::move(command));
    }
  }
  return out;
}

std::string join_names(const std::vector<Completed>& commands) {
  std::string names;
  for (const Completed& command : commands) names += (names.empty() ? "" : " ") + command.name;
  return names;
}

std::string bash_values(const Option& option) {
  switch (option.argument) {
    case Argument::Choice:
      return fmt::format("COMPREPLY=($(compgen -W \"{}\" -- \"$current\"))",
                         fmt::join(option.choices, " "));
    case Argument::Directory:
      return "COMPREPLY=($(compgen -d -- \"$current\"))";
    case Argument::File:
      return "COMPREPLY=($(compgen -f -- \"$current\"))";
    case Argument::Any:
      return "COMPREPLY=()";
    case Argument::Flag:
      break;
  }
  return "";
}

// The words after the first bare word, for a command where that word has choices.
std::string bash_later(const Completed& command) {
  if (command.words.empty()) return "";
  std::string out =
      "      if [ \"$COMP_CWORD\" -gt 2 ]; then\n        case \"${COMP_WORDS[2]}\" in\n"
      "          -*) ;;\n";
  for (const auto& [first, words] : command.later)
    out += fmt::format("          {}) words=\"{}\" ;;\n", first, fmt::join(words, " "));
  return out + "          *) words=\"\" ;;\n        esac\n      fi\n";
}

std::string bash_command(const Completed& command) {
  std::string out = fmt::format("    {})\n      case \"$previous\" in\n", command.name);
  std::string names;
  for (const Option& option : command.options) {
    names += " --" + option.name;
    const std::string values = bash_values(option);
    if (!values.empty()) out += fmt::format("        --{}) {}; return ;;\n", option.name, values);
  }
  return out + fmt::format("      esac\n      options=\"{}\"\n      words=\"{}\"\n{}      ;;\n",
                           names.substr(1), fmt::join(command.words, " "), bash_later(command));
}

std::string bash_script(const std::vector<Completed>& commands) {
  std::string out = fmt::format(
      "_snug() {{\n"
      "  local current=\"${{COMP_WORDS[COMP_CWORD]}}\" previous=\"${{COMP_WORDS[COMP_CWORD-1]}}\"\n"
      "  local options=\"\" words=\"\"\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case \"${{COMP_WORDS[1]//-/_}}\" in\n",
      join_names(commands));
  for (const Completed& command : commands) out += bash_command(command);
  return out +
         "  esac\n"
         "  case \"$current\" in\n"
         "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$current\")) ;;\n"
         "    *) COMPREPLY=($(compgen -W \"$words\" -- \"$current\")) ;;\n"
         "  esac\n"
         "}\n"
         "complete -o default -F _snug snug\n";
}

// Inside '…' and an _arguments specification.
std::string zsh_quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out;
}

std::string zsh_values(const Option& option) {
  switch (option.argument) {
    case Argument::Flag:
      return option.choices.empty() ? "" : "::value:(true false)";
    case Argument::Choice:
      return fmt::format(":value:({})",
                         zsh_quoted(fmt::format("{}", fmt::join(option.choices, " "))));
    case Argument::File:
      return ":file:_files";
    case Argument::Directory:
      return ":directory:_directories";
    case Argument::Any:
      break;
  }
  return ":value: ";
}

std::string zsh_later(const Completed& command) {
  if (command.words.empty()) return "";
  std::string out = "      local later=_files\n      case \"${words[2]}\" in\n";
  for (const auto& [first, words] : command.later)
    out += fmt::format("        {}) later=\"({})\" ;;\n", first, fmt::join(words, " "));
  return out + "      esac\n";
}

std::string zsh_script(const std::vector<Completed>& commands) {
  std::string out = "#compdef snug\n_snug() {\n  local -a commands\n  commands=(\n";
  for (const Completed& command : commands)
    out += fmt::format("    '{}:{}'\n", command.name, zsh_quoted(command.summary));
  out +=
      "  )\n"
      "  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
      "  shift words\n  (( CURRENT-- ))\n"
      "  case \"${words[1]//-/_}\" in\n";
  for (const Completed& command : commands) {
    out += fmt::format("    {})\n{}      _arguments \\\n", command.name, zsh_later(command));
    for (const Option& option : command.options)
      out += fmt::format("        '--{}[{}]{}' \\\n", option.name, zsh_quoted(option.help),
                         zsh_values(option));
    if (command.words.empty())
      out += "        '*:file:_files'\n";
    else
      out += fmt::format("        '1:word:({})' \\\n        \"*:word:$later\"\n",
                         fmt::join(command.words, " "));
    out += "      ;;\n";
  }
  return out +
         "  esac\n}\n"
         "if [ \"$funcstack[1]\" = \"_snug\" ]; then\n  _snug \"$@\"\nelse\n  compdef _snug "
         "snug\nfi\n";
}

std::string fish_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string fish_values(const Option& option) {
  switch (option.argument) {
    case Argument::Choice:
      return " -x -a " + fish_quoted(fmt::format("{}", fmt::join(option.choices, " ")));
    case Argument::File:
      return " -r -F";
    case Argument::Directory:
      return " -x -a '(__fish_complete_directories)'";
    case Argument::Any:
      return " -x";
    case Argument::Flag:
      break;
  }
  return "";
}

std::string fish_words(const Completed& command) {
  if (command.words.empty()) return "";
  const std::string seen = "__fish_seen_subcommand_from ";
  const std::string all = fmt::format("{}", fmt::join(command.words, " "));
  std::string out =
      fmt::format("complete -c snug -n {} -f -a {}\n",
                  fish_quoted(fmt::format("{0}{1}; and not {0}{2}", seen, command.name, all)),
                  fish_quoted(all));
  for (const auto& [first, words] : command.later)
    out += fmt::format("complete -c snug -n {} -a {}\n",
                       fish_quoted(fmt::format("{0}{1}; and {0}{2}", seen, command.name, first)),
                       fish_quoted(fmt::format("{}", fmt::join(words, " "))));
  return out;
}

std::string fish_script(const std::vector<Completed>& commands) {
  std::string out;
  for (const Completed& command : commands) {
    out += fmt::format("complete -c snug -n __fish_use_subcommand -f -a {} -d {}\n", command.name,
                       fish_quoted(command.summary));
    const std::string seen = fish_quoted("__fish_seen_subcommand_from " + command.name);
    for (const Option& option : command.options)
      out += fmt::format("complete -c snug -n {} -l {} -d {}{}\n", seen, option.name,
                         fish_quoted(option.help), fish_values(option));
    out += fish_words(command);
  }
  return out;
}

}  // namespace

std::string completion_script(std::string_view shell) {
  const std::vector<Completed> commands = completed_commands();
  if (shell == "bash") return bash_script(commands);
  if (shell == "zsh") return zsh_script(commands);
  if (shell == "fish") return fish_script(commands);
  throw UserError("no completion for the shell {}; choose bash, zsh or fish", shell);
}

}  // namespace snug::recipe
