// The command line, with the recipe file that --config names, becomes options. Precedence, lowest
// first: the command's defaults, the file, the options from left to right. Faults are UserErrors
// that say where they are; as many as possible are reported at once.
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
  std::string import_note;    // of a recipe of another program: what became of its keys
  // Only the one of `command` is filled.
  Recipe recipe;
  DemoOptions demo;
  PlanOptions plan;
  ModelsOptions models;
  ImportOptions import_options;
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
  VerifyOptions verify;
  DownloadOptions download;
  CompletionOptions completion;
  HelpOptions help_options;
};

// `words` is argv[1..]. Throws UserError. Does not call check_recipe, since --print_config must
// also print a faulty recipe.
ParsedCommand parse_command_line(std::span<const std::string> words);

}  // namespace snug::recipe
