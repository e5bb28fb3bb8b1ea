// From words to options: the command line, a recipe file, and both together. Order of precedence,
// lowest first: defaults of the command, the file given by --config, the options from left to
// right. A wrong word, key or value is a UserError that names where it stands; all faults that
// checking the whole finds are reported at once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <variant>

#include "recipe/options/commands.h"
#include "recipe/recipe.h"

namespace snug::recipe {

struct ParsedCommand {
  Command command = Command::Help;
  std::string name;           // as typed: "finetune"
  bool help = false;          // --help: print help_text(name) and stop
  bool help_all = false;      // --help all: with every option
  bool print_config = false;  // --print_config: print print_recipe_yaml(recipe) and stop
  // The one that belongs to `command` is filled.
  Recipe recipe;
  DemoOptions demo;
  PlanOptions plan;
  GenerateOptions generate;
  GenerateOptions chat{.max_new_tokens = 512};
  ShowDataOptions show_data;
  CaptionOptions caption;
  EvaluateOptions evaluate;
  ConvertOptions convert;
  MergeOptions merge;
  BenchOptions bench;
  LabOptions lab;
  MonitorOptions monitor;
  DoctorOptions doctor;
  DownloadOptions download;
  CompletionOptions completion;
  HelpOptions help_options;
};

// argv[1..]. Throws UserError. Does not call check_recipe (check.h): --print_config must work
// first.
ParsedCommand parse_command_line(std::span<const std::string> words);

}  // namespace snug::recipe
