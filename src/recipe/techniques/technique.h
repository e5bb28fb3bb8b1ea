// The techniques that save memory, one file each: the option, what it needs and excludes, what it
// costs, and how a search for what fits varies it. Options, checks, plans and suggestions read the
// list of them (all.def).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "recipe/options/row.h"
#include "recipe/recipe.h"

namespace snug::recipe {

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
  std::string_view other;  // its key
  std::string_view words;
};

// Another condition that a recipe must meet.
struct Condition {
  bool (*holds)(const Recipe&);
  std::string_view fault;      // the whole message; {strategy} is replaced
  bool about_devices = false;  // about the device layout, which a plan may change
};

struct Technique {
  std::string_view key;  // of its option
  Row (*option)(Recipe&);
  // Faults of the option's text, and of options that belong to it. Called where it is off too.
  void (*add_faults)(const Recipe&, std::vector<std::string>&) = nullptr;
  // Decides what `auto` means, which changes with other options: called when they are read, and
  // when another technique is turned on.
  void (*settle)(Recipe&) = nullptr;
  std::vector<Beside> needs = {};
  std::vector<Beside> excludes = {};
  std::vector<Condition> conditions = {};
  // What to warn of where it is on and of no use; empty: nothing.
  std::string (*advice)(const Recipe&) = nullptr;

  // The values that fit tries: off first, then those that do more and more.
  std::vector<std::string_view> values;
  bool (*may_try)(const Recipe&) = nullptr;  // whether fit may choose it; null: always
  bool gains_on_gpus_only = false;           // where copies run beside the computation
  bool for_experts = false;                  // does nothing in a model without experts
  bool for_one_micro_batch = false;          // of use where a step has only one
  bool takes_folder = false;  // disk:FOLDER is a value too, for a search that may use a disk
  // What to say where a search chose it, which changes the training; empty: it does not.
  std::string_view changes_training = {};
  // The cost of the last value, for suggestions; empty words: they never propose it.
  TimeCost cost = TimeCost::Nothing;
  std::string_view cost_words = {};
  bool (*saves)(const Recipe&) = nullptr;  // whether it saves anything; null: always
  // The cost of turning it off, which saves memory; empty: suggestions never propose it.
  std::string_view cost_words_of_off = {};

  // Whether it saves time and takes memory, rather than the other way round.
  bool takes_memory() const { return cost_words.empty(); }
  bool repeats_forward() const { return cost == TimeCost::Recompute; }
};

// In the order of all.def, and then those from outside.
const std::deque<Technique>& techniques();
// Those that are on.
std::vector<const Technique*> techniques_on(const Recipe& recipe);
// One from outside, before any recipe is read and anything is planned. Its texts must live as long
// as the process. Throws UserError for an option's name that is taken, for a technique that it
// needs or excludes and that is none, and for values that its option does not read as they stand.
void add_technique(const Technique& technique);
// Where a recipe holds the option of a technique from outside, whose default is `fallback`; until
// the recipe is assigned to.
template <class T>
T* extra_option(Recipe& recipe, const std::string& key, T fallback) {
  return &std::get<T>(recipe.extra_options.try_emplace(key, std::move(fallback)).first->second);
}
template <class T>
T extra_option(const Recipe& recipe, const std::string& key, T fallback) {
  const auto found = recipe.extra_options.find(key);
  return found == recipe.extra_options.end() ? fallback : std::get<T>(found->second);
}

const Technique& technique_of(std::string_view key);
size_t place_of(std::string_view key);  // in that order

// One process on one device, whatever the machine has.
bool is_alone(const Recipe& recipe);

// The option's value as text.
std::string value_of(const Technique& technique, const Recipe& recipe);
void set_value(const Technique& technique, Recipe& recipe, const std::string& value);
bool is_on(const Technique& technique, const Recipe& recipe);
// Sets the technique to its last value and turns on what it needs. Returns false and changes
// nothing if it is on already, would be refused or saves nothing.
bool turn_on(const Technique& technique, Recipe& recipe);
// Returns false if it is off already.
bool turn_off(const Technique& technique, Recipe& recipe);
// Turns off those whose conditions do not hold (any more), but for conditions about devices.
void turn_off_impossible(Recipe& recipe);

// The faults of the recipe's techniques, one sentence each.
std::vector<std::string> technique_faults(const Recipe& recipe);
// Whether there are none, not counting those about the device layout.
bool can_be_combined(const Recipe& recipe);

}  // namespace snug::recipe
