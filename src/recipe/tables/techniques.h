// The techniques that save memory, one row each: the option, what it needs and excludes, what it
// costs, and how a search for what fits varies it. Options, checks, plans and suggestions read this
// table; the policies that do the work are in engine/exec/policies.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "recipe/options/row.h"
#include "recipe/recipe.h"

namespace snug::recipe {

enum class Technique {
  ActivationCheckpointing,
  ActivationOffload,
  OptimizerInBackward,
  OptimizerOffload,
  DelayedParameterUpdate,
  WeightStreaming
};

// What saving memory costs in time, in the order in which suggestions try it.
enum class TimeCost {
  Nothing,
  Communication,
  Recompute,
  UpdatesOnHost,
  CopiedActivations,
  CopiedWeights
};

// How a technique gets on with another one; `words` is the reason of the refusal.
struct Beside {
  Technique other;
  std::string_view words;
};

// What else a technique asks of a recipe.
struct Condition {
  bool (*holds)(const Recipe&);
  std::string_view fault;      // the whole refusal; {strategy} is the recipe's
  bool about_devices = false;  // on how devices share the work, which a plan may change
};

struct TechniqueTraits {
  Technique technique;
  Row (*option)(Recipe&);
  std::string (*value_fault)(const Recipe&) = nullptr;  // what is wrong with the option's text
  std::vector<Beside> needs = {};
  std::vector<Beside> excludes = {};
  std::vector<Condition> conditions = {};

  // The values that a fit tries: off first, then from what takes most memory to what takes least.
  std::vector<std::string_view> values;
  // Whether a fit may choose it for a recipe that does not give it, and whether it gains anything
  // where nothing runs beside the computation.
  bool (*may_try)(const Recipe&) = nullptr;  // null: always
  bool gains_on_gpus_only = false;
  // What suggestions say that the last value costs; empty: they never propose it.
  TimeCost cost = TimeCost::Nothing;
  std::string_view cost_words = {};
  bool (*saves)(const Recipe&) = nullptr;  // whether it saves anything; null: always
};

// In the order of the enum, which is that of --help.
const std::vector<TechniqueTraits>& techniques();
const TechniqueTraits& traits_of(Technique technique);

// The option's key, and its value as text.
std::string key_of(const TechniqueTraits& traits);
std::string value_of(const TechniqueTraits& traits, const Recipe& recipe);
void set_value(const TechniqueTraits& traits, Recipe& recipe, const std::string& value);
bool is_on(const TechniqueTraits& traits, const Recipe& recipe);
// Gives the technique its last value, and turns on what it needs. Returns false if it is on
// already, would be refused or saves nothing; the recipe is then as before.
bool turn_on(const TechniqueTraits& traits, Recipe& recipe);

// Why the recipe's techniques are refused, a sentence each.
std::vector<std::string> technique_faults(const Recipe& recipe);
// Whether they are not, however devices share the work.
bool can_be_combined(const Recipe& recipe);

}  // namespace snug::recipe
