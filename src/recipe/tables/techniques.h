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
  WeightStreaming,
  ExpertStreaming,
  CastCache,
  CudaGraphs
};

// The time that a technique costs, in the order in which suggestions try them.
enum class TimeCost {
  Nothing,
  Communication,
  Recompute,
  UpdatesOnHost,
  CopiedActivations,
  CopiedWeights,
  CopiedExperts
};

// Another technique that this one needs or excludes, and why.
struct Beside {
  Technique other;
  std::string_view words;
};

// Another condition that a recipe must meet.
struct Condition {
  bool (*holds)(const Recipe&);
  std::string_view fault;      // the whole message; {strategy} is replaced
  bool about_devices = false;  // about the device layout, which a plan may change
};

struct TechniqueTraits {
  Technique technique;
  Row (*option)(Recipe&);
  std::string (*value_fault)(const Recipe&) = nullptr;  // the fault of the option's text
  std::vector<Beside> needs = {};
  std::vector<Beside> excludes = {};
  std::vector<Condition> conditions = {};

  // The values that fit tries: off first, then those that do more and more.
  std::vector<std::string_view> values;
  bool (*may_try)(const Recipe&) = nullptr;  // whether fit may choose it; null: always
  bool gains_on_gpus_only = false;           // where copies run beside the computation
  bool for_experts = false;                  // does nothing in a model without experts
  // The cost of the last value, for suggestions; empty words: they never propose it.
  TimeCost cost = TimeCost::Nothing;
  std::string_view cost_words = {};
  bool (*saves)(const Recipe&) = nullptr;  // whether it saves anything; null: always

  // Whether it saves time and takes memory, rather than the other way round.
  bool takes_memory() const { return cost_words.empty(); }
};

// In the order of the enum and of --help.
const std::vector<TechniqueTraits>& techniques();
const TechniqueTraits& traits_of(Technique technique);

// The option's key, and its value as text.
std::string key_of(const TechniqueTraits& traits);
std::string value_of(const TechniqueTraits& traits, const Recipe& recipe);
void set_value(const TechniqueTraits& traits, Recipe& recipe, const std::string& value);
bool is_on(const TechniqueTraits& traits, const Recipe& recipe);
// Sets the technique to its last value and turns on what it needs. Returns false and changes
// nothing if it is on already, would be refused or saves nothing.
bool turn_on(const TechniqueTraits& traits, Recipe& recipe);

// The faults of the recipe's techniques, one sentence each.
std::vector<std::string> technique_faults(const Recipe& recipe);
// Whether there are none, not counting those about the device layout.
bool can_be_combined(const Recipe& recipe);

}  // namespace snug::recipe
