// SPDX-License-Identifier: Apache-2.0
#include "engine/adapters/trained_parts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "core/nn/precision.h"
#include "engine/adapters/adapters.h"
#include "engine/more_tokens.h"
#include "recipe/selection.h"

namespace snug::engine {
namespace {

void check_parts(const std::vector<models::ModelPart>& parts, const std::vector<std::string>& names,
                 const std::string& choice) {
  std::vector<std::string> known;
  for (const models::ModelPart& part : parts) known.push_back(part.name);
  for (const std::string& name : names)
    if (std::ranges::find(known, name) == known.end())
      throw UserError("model.train_parts = {}: this model has no part {}; it has {}", choice, name,
                      fmt::join(known, ", "));
}

void set_trained(nn::Unit& unit, bool trained) {
  for (nn::Parameter* parameter : unit.parameters())
    parameter->trained = trained && !parameter->constant;
}

// Layers that train in full get no adapter: it would be redundant.
void train_whole_beside_adapters(models::Model& model, const std::vector<nn::Unit*>& whole,
                                 const std::string& choice) {
  for (nn::Unit* unit : whole) {
    for (nn::Linear* linear : unit->linears()) linear->set_adapter(nullptr);
    set_trained(*unit, true);
  }
  for (const nn::Linear* linear : linears_of(model))
    if (linear->adapter() != nullptr) return;
  throw UserError(
      "model.train_parts = {}: all layers in lora_target_modules belong to these parts, which "
      "train in full, so no layer gets an adapter; name layers of another part, or use snug "
      "finetune_full",
      choice);
}

}  // namespace

std::vector<nn::Unit*> chosen_units(models::Model& model, const recipe::Recipe& recipe) {
  const std::vector<std::string> names = recipe::part_names(recipe.model.train_parts);
  if (names.empty()) return {};
  const std::vector<models::ModelPart> parts = model.parts();
  check_parts(parts, names, recipe.model.train_parts);
  std::vector<nn::Unit*> chosen;
  for (const models::ModelPart& part : parts)
    if (std::ranges::find(names, part.name) != names.end())
      chosen.insert(chosen.end(), part.units.begin(), part.units.end());
  return chosen;
}

void choose_trained(models::Model& model, const recipe::Recipe& recipe) {
  if (recipe.model.dropout) model.set_dropout(*recipe.model.dropout);
  const std::vector<nn::Unit*> chosen = chosen_units(model, recipe);
  if (recipe.lora.enabled) {
    add_adapters(model, recipe.lora);
    if (!recipe.data.add_tokens.empty()) train_vocabulary(model);
    if (!chosen.empty()) train_whole_beside_adapters(model, chosen, recipe.model.train_parts);
  } else if (!chosen.empty()) {
    for (nn::Unit* unit : model.units())
      set_trained(*unit, std::ranges::find(chosen, unit) != chosen.end());
  }
}

std::optional<at::ScalarType> frozen_type(const recipe::Recipe& recipe) {
  const nn::Precision precision = nn::parse_precision(recipe.precision);
  const bool is_pissa =
      recipe.lora.enabled && recipe.lora.init_weights == recipe::AdapterInit::Pissa;
  if (recipe.frozen_dtype == recipe::FrozenType::Float32 || is_pissa ||
      precision.compute == precision.parameters)
    return std::nullopt;
  return precision.compute;
}

void hold_frozen(models::Model& model, const recipe::Recipe& recipe) {
  const std::optional<at::ScalarType> type = frozen_type(recipe);
  for (nn::Unit* unit : model.units())
    for (nn::Parameter* parameter : unit->parameters()) {
      if (parameter->constant) continue;
      const bool is_held = !parameter->trained && parameter->is_rounded_when_used();
      parameter->held = is_held ? type : std::nullopt;
    }
}

}  // namespace snug::engine
