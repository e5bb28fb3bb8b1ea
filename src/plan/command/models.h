// snug models: the table of models by name, with what each needs. The needs are planned once and
// kept beside the table (recipes/models/needs.json), since planning all takes minutes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "recipe/hub_models.h"
#include "recipe/options/commands.h"

namespace snug::plan {

// Bytes reserved on a GPU for one sample of 2,048 tokens, or as many as the model takes; 0: it
// cannot be trained so.
struct Needs {
  int64_t qlora = 0, lora = 0, all_weights = 0;
  bool operator==(const Needs&) const = default;
};

// Plans them.
Needs plan_needs(const recipe::HubModel& model);
// Those in the kept file, by the model's first id.
std::map<std::string, Needs> kept_needs();
std::string text_of(const std::map<std::string, Needs>& needs);  // of that file

// Prints the list. Throws UserError where no model has the name.
void list_models(const recipe::ModelsOptions& options);

}  // namespace snug::plan
