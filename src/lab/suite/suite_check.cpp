// SPDX-License-Identifier: Apache-2.0
#include "lab/suite/suite_rows.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "lab/suite/suite_options.h"
#include "recipe/check.h"
#include "recipe/parse.h"

namespace snug::lab {
namespace {

recipe::ParsedCommand parsed(const std::vector<std::string>& words) {
  // What is worth a warning is said by the row's own process.
  const LogSinkGuard quiet([](const std::string&) {});
  recipe::ParsedCommand command = recipe::parse_command_line(words);
  recipe::check_recipe(command.command, command.recipe);
  return command;
}

void check_model(const Suite& suite, const Row& row) {
  for (const char* const key : {"checkpoint_dir", "model.config"})
    if (!row.model.empty() && find_option(row.options, key) != nullptr)
      throw UserError("{}: its model {} already sets this; leave out one of the two", key,
                      row.model);
  if (row.model.empty() && !suite.models.empty() &&
      find_option(row.options, "checkpoint_dir") == nullptr &&
      find_option(row.options, "model.config") == nullptr &&
      find_option(row.options, kConfig) == nullptr)
    throw UserError("has no model; give one of the suite's");
}

// A plan is of full fine-tuning or of adapters by what its options say, a run by its command.
void check_same_training(const recipe::ParsedCommand& plan, const recipe::ParsedCommand& run) {
  if (plan.recipe.full != run.recipe.full)
    throw UserError(
        "command {} trains {}, but its options ask for {}; give LoRA options (lora_r, …), full, or "
        "another command",
        run.name, run.recipe.full ? "all weights" : "adapters",
        plan.recipe.full ? "all weights" : "adapters");
}

}  // namespace

void check_words(const Suite& suite, const Row& row, int line, Faults& faults) {
  if (!row.not_run.empty() && row.model.empty()) return;
  try {
    check_model(suite, row);
    const auto plan = parsed(plan_words(suite, row, Mode::Plan, {}));
    const auto run = parsed(run_words(suite, row, Mode::Run, {}, "out"));
    check_same_training(plan, run);
    const auto model = suite.models.find(row.model);
    if (model == suite.models.end() || model->second.scaled_config.empty()) return;
    parsed(plan_words(suite, row, Mode::Scaled, {}));
    parsed(run_words(suite, row, Mode::Scaled, {}, "out"));
  } catch (const UserError& error) {
    faults.add(line, fmt::format("row {}: {}", row.id, error.what()));
  }
}

}  // namespace snug::lab
