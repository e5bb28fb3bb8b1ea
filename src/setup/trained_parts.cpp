// SPDX-License-Identifier: Apache-2.0
#include "setup/trained_parts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/part_names.h"
#include "setup/adapters.h"

namespace snug::setup {
namespace {

void check_parts(const std::vector<models::ModelPart>& parts, const std::vector<std::string>& names,
                 const std::string& choice) {
  std::vector<std::string> known;
  for (const models::ModelPart& part : parts) known.push_back(part.name);
  for (const std::string& name : names)
    if (std::ranges::find(known, name) == known.end())
      throw UserError("model.train_parts = {}: this model has no part {}, only {}", choice, name,
                      fmt::join(known, ", "));
}

}  // namespace

void choose_trained(models::Model& model, const config::Recipe& recipe) {
  if (recipe.model.dropout) model.set_dropout(*recipe.model.dropout);
  const std::vector<std::string> names = config::part_names(recipe.model.train_parts);
  if (!names.empty()) {
    const std::vector<models::ModelPart> parts = model.parts();
    check_parts(parts, names, recipe.model.train_parts);
    for (const models::ModelPart& part : parts) {
      const bool trains = std::ranges::find(names, part.name) != names.end();
      for (nn::Unit* unit : part.units)
        for (nn::Parameter* parameter : unit->parameters()) parameter->trained = trains;
    }
  }
  add_adapters(model, recipe.lora);
}

}  // namespace snug::setup
