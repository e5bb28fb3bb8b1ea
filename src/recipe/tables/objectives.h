// The table of objectives: what training minimises, of which rows, and with which options. The
// defaults are those of TRL's trainers, or of the paper where TRL's would not learn.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "recipe/recipe.h"

namespace snug::recipe {

struct ObjectiveTraits {
  bool preferences = false;                 // its rows say which of two answers is better
  bool ratings = false;                     // its rows say of an answer whether it is good
  bool has_teacher = false;                 // a file says of each target what another model does
  bool scores_documents = false;            // the head scores whole documents, for a few labels
  std::vector<std::string_view> arguments;  // objective.<argument> that it takes
  ObjectiveOptions defaults;
  // AdamW's learning rates on a checkpoint, unless one is given.
  double lr_of_all_weights = kRateOfAllWeights, lr_of_adapters = OptimizerOptions{}.lr;
};

const ObjectiveTraits& objective_traits(ObjectiveName name);
// Those of sft for an unknown name.
ObjectiveOptions objective_defaults(std::string_view name);
// Whether this objective takes objective.<argument>.
bool objective_takes(std::string_view name, std::string_view argument);

// Whether its rows say which of two answers is better; not those of an unknown name.
bool learns_from_pairs(std::string_view name);
// Whether its rows say of an answer whether it is good.
bool learns_from_ratings(std::string_view name);
// Either: answers are compared with the model before training, or with each other.
bool compares_answers(std::string_view name);
// Whether it trains a head that scores whole documents; not that of an unknown name.
bool scores_documents(std::string_view name);
// Whether its rows have a label each.
bool learns_labels(std::string_view name);
// Whether its batches have what another model says of each target.
bool has_teacher(std::string_view name);
// Documents that a sample has: two of a pair.
int64_t documents_per_sample(const ObjectiveOptions& objective);

double usual_rate(const ObjectiveOptions& objective, bool all_weights);

}  // namespace snug::recipe
