// The commands: names, what each one is for, examples, and its rows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "recipe/apply.h"
#include "recipe/parse.h"

namespace snug::recipe {

struct CommandInfo {
  Command command;
  std::vector<std::string_view> names;  // the first one is shown
  std::string_view summary;             // one line of `snug --help`
  std::string_view about;               // a paragraph of the command's own help
  std::vector<std::string_view> examples;
};

const std::vector<CommandInfo>& command_table();
// Hyphens count as underscores. nullptr for an unknown name.
const CommandInfo* find_command(std::string_view name);
std::vector<std::string> command_names();  // with their other spellings
// Commands that read a recipe: the finetune ones and plan.
bool takes_recipe(Command command);

// The rows of parsed.command, bound to `parsed`.
std::vector<Row> rows_of(ParsedCommand& parsed);

// Those, and for the demo the rows of the run that it starts, which takes what is not the demo's.
std::vector<Row> accepted_rows(ParsedCommand& parsed);

// The recipe that `command` starts from, before any file or option; `full` as in finetune --full.
Recipe default_recipe(Command command, bool full);
// The same where nothing is said of either: a plan is of full fine-tuning.
Recipe usual_recipe(Command command);

}  // namespace snug::recipe
