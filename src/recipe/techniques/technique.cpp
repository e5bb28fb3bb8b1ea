// SPDX-License-Identifier: Apache-2.0
#include "recipe/techniques/technique.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "recipe/options/rows.h"

namespace snug::recipe {
namespace {

// The faults of one technique that is on.
void add_faults(const Technique& technique, const Recipe& recipe, bool with_devices,
                std::vector<std::string>& faults) {
  const std::string is = fmt::format("{} = {}", technique.key, value_of(technique, recipe));
  for (const auto& [other, words] : technique.needs)
    if (const Technique& needed = technique_of(other); !is_on(needed, recipe))
      faults.push_back(
          fmt::format("{}: {}; add --{} {}", is, words, needed.key, needed.values.back()));
  for (const auto& [other, words] : technique.excludes)
    if (is_on(technique_of(other), recipe))
      faults.push_back(fmt::format("{} with {}: {}; leave out one of the two", is, other, words));
  for (const Condition& condition : technique.conditions)
    if ((with_devices || !condition.about_devices) && !condition.holds(recipe))
      faults.push_back(fmt::format(fmt::runtime(condition.fault),
                                   fmt::arg("strategy", std::string_view(recipe.strategy))));
}

std::vector<std::string> faults_of(const Recipe& recipe, bool with_devices) {
  std::vector<std::string> faults;
  for (const Technique* technique : techniques_on(recipe))
    add_faults(*technique, recipe, with_devices, faults);
  return faults;
}

}  // namespace

#define SNUG_TECHNIQUE(name) Technique name();
#include "recipe/techniques/all.def"
#undef SNUG_TECHNIQUE

bool is_alone(const Recipe& r) { return r.devices == "1" && r.num_nodes == 1 && r.mesh.empty(); }

namespace {

// References to techniques stay when one is added.
std::deque<Technique>& all_techniques() {
#define SNUG_TECHNIQUE(name) name(),
  static std::deque<Technique> all = {
#include "recipe/techniques/all.def"
  };
#undef SNUG_TECHNIQUE
  return all;
}

// What is wrong with a technique from outside, for its author; empty: nothing.
std::string fault_of_new(const Technique& technique) {
  Recipe recipe;
  const Row option = technique.option(recipe);
  const std::vector<Row> rows = recipe_rows(recipe);
  std::vector<std::string> names = option.aliases;
  names.emplace_back(technique.key);
  for (const std::string& name : names)
    if (find_row(rows, name) != nullptr)
      return fmt::format("there is an option {}; choose another name", name);
  if (option.key != technique.key) return fmt::format("its option is called {}", option.key);
  for (const auto* others : {&technique.needs, &technique.excludes})
    for (const Beside& beside : *others)
      if (std::ranges::find(techniques(), beside.other, &Technique::key) == techniques().end())
        return fmt::format("there is no technique {} that it could need or exclude", beside.other);
  if (technique.values.size() < 2) return "it has no value that turns it on";
  if (is_on(technique, recipe))
    return fmt::format("it is on by default: its first value is {} and that of its option {}",
                       technique.values.front(), value_of(technique, recipe));
  for (const std::string_view value : technique.values) {
    if (std::string fault =
            store(option, {.kind = Value::Kind::Text, .text = std::string(value)}, option);
        !fault.empty())
      return fault;
    if (value_of(technique, recipe) != value)
      return fmt::format("its value {} is read as {}", value, value_of(technique, recipe));
  }
  return {};
}

}  // namespace

const std::deque<Technique>& techniques() { return all_techniques(); }

void add_technique(const Technique& technique) {
  if (const std::string fault = fault_of_new(technique); !fault.empty())
    throw UserError("the technique {}: {}", technique.key, fault);
  all_techniques().push_back(technique);
}

std::vector<const Technique*> techniques_on(const Recipe& recipe) {
  std::vector<const Technique*> on;
  Recipe copy = recipe;
  for (const Technique& technique : techniques())
    if (plain_text(technique.option(copy)) != technique.values.front()) on.push_back(&technique);
  return on;
}

const Technique& technique_of(std::string_view key) { return techniques()[place_of(key)]; }

size_t place_of(std::string_view key) {
  const auto found = std::ranges::find(techniques(), key, &Technique::key);
  SNUG_CHECK(found != techniques().end(), "no technique is called {}", key);
  return static_cast<size_t>(found - techniques().begin());
}

std::string value_of(const Technique& technique, const Recipe& recipe) {
  Recipe copy = recipe;
  return plain_text(technique.option(copy));
}

void set_value(const Technique& technique, Recipe& recipe, const std::string& value) {
  const Row row = technique.option(recipe);
  const std::string fault = store(row, {.kind = Value::Kind::Text, .text = value}, row);
  SNUG_CHECK(fault.empty(), "{} = {}: {}", row.key, value, fault);
}

bool is_on(const Technique& technique, const Recipe& recipe) {
  return value_of(technique, recipe) != technique.values.front();
}

bool turn_on(const Technique& technique, Recipe& recipe) {
  if (is_on(technique, recipe) || (technique.saves != nullptr && !technique.saves(recipe)))
    return false;
  Recipe with = recipe;
  for (const Beside& need : technique.needs) turn_on(technique_of(need.other), with);
  set_value(technique, with, std::string(technique.values.back()));
  for (const Technique& other : techniques())
    if (&other != &technique && other.settle != nullptr) other.settle(with);
  if (!can_be_combined(with)) return false;
  recipe = std::move(with);
  return true;
}

bool turn_off(const Technique& technique, Recipe& recipe) {
  if (!is_on(technique, recipe)) return false;
  set_value(technique, recipe, std::string(technique.values.front()));
  return true;
}

void turn_off_impossible(Recipe& recipe) {
  for (const Technique& technique : techniques())
    if (std::ranges::any_of(technique.conditions, [&](const Condition& c) {
          return !c.about_devices && !c.holds(recipe);
        }))
      turn_off(technique, recipe);
}

std::vector<std::string> technique_faults(const Recipe& recipe) {
  std::vector<std::string> faults;
  for (const Technique& technique : techniques())
    if (technique.add_faults != nullptr) technique.add_faults(recipe, faults);
  std::ranges::move(faults_of(recipe, /*with_devices=*/true), std::back_inserter(faults));
  return faults;
}

bool can_be_combined(const Recipe& recipe) {
  return faults_of(recipe, /*with_devices=*/false).empty();
}

}  // namespace snug::recipe
