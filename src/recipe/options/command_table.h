// The commands: names, purpose, examples and rows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "recipe/parse.h"
#include "recipe/settings.h"

namespace snug::recipe {

struct CommandInfo {
  Command command;
  std::vector<std::string_view> names;  // the first one is shown
  std::string_view summary;             // one line of `snug --help`
  std::string_view about;               // a paragraph of the command's own help
  std::vector<std::string_view> examples;
};

const std::vector<CommandInfo>& command_table();
// Hyphens equal underscores. nullptr for an unknown name.
const CommandInfo* find_command(std::string_view name);
std::vector<std::string> command_names();  // with their other spellings
// Commands that read a recipe: the finetune ones and plan.
bool takes_recipe(Command command);

// The rows of parsed.command, bound to `parsed`.
std::vector<Row> rows_of(ParsedCommand& parsed);

// The same; for demo also the rows of the finetune command that it starts and passes options to.
std::vector<Row> accepted_rows(ParsedCommand& parsed);

// The default recipe of `command`; `full` as in finetune --full.
Recipe default_recipe(Command command, bool full);
// The same without any option: plan is then for full fine-tuning.
Recipe usual_recipe(Command command);

}  // namespace snug::recipe
