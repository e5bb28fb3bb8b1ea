// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/policies/activation_checkpointing.h"

#include <algorithm>

#include "engine/engine.h"
#include "engine/techniques/behaviour.h"
#include "recipe/techniques/checkpointing.h"

namespace snug::engine {
namespace {

std::vector<bool> of_stage(const std::vector<bool>& model, const Stage& stage) {
  std::vector<bool> units;
  for (const int64_t position : stage.positions)
    units.push_back(position >= 0 && model[static_cast<size_t>(position)]);
  return units;
}

std::shared_ptr<exec::Policy> checkpoint_units(const recipe::Recipe& recipe, Engine& engine) {
  if (recipe::checkpointing_of(recipe) == recipe::Checkpointing::Selective)
    return std::make_shared<exec::SelectiveCheckpointing>();
  return std::make_shared<exec::ActivationCheckpointing>(
      of_stage(checkpointed_units(recipe, engine.stage.kinds), engine.stage));
}

}  // namespace

std::vector<bool> checkpointed_units(const recipe::Recipe& recipe,
                                     const std::vector<nn::UnitKind>& kinds) {
  if (recipe::checkpointing_of(recipe) == recipe::Checkpointing::All)
    return std::vector<bool>(kinds.size(), true);
  const auto blocks =
      recipe::repeated_blocks(recipe, std::ranges::count(kinds, nn::UnitKind::Block));
  std::vector<bool> units;
  units.reserve(kinds.size());
  auto block = blocks.begin();
  for (const nn::UnitKind kind : kinds) units.push_back(kind == nn::UnitKind::Block && *block++);
  return units;
}

Behaviour activation_checkpointing() {
  return {.key = "activation_checkpointing", .policy = checkpoint_units};
}

}  // namespace snug::engine
