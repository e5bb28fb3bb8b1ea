// SPDX-License-Identifier: Apache-2.0
#include "engine/techniques/behaviour.h"

#include <algorithm>

#include "base/error.h"
#include "core/ops/device/device.h"
#include "engine/engine.h"

namespace snug::engine {

#define SNUG_TECHNIQUE(name) Behaviour name();
#include "recipe/techniques/all.def"
#undef SNUG_TECHNIQUE

namespace {

std::vector<Behaviour>& all_behaviours() {
#define SNUG_TECHNIQUE(name) name(),
  static std::vector<Behaviour> all = {
#include "recipe/techniques/all.def"
  };
#undef SNUG_TECHNIQUE
  return all;
}

}  // namespace

const std::vector<Behaviour>& behaviours() { return all_behaviours(); }

void add_technique(const recipe::Technique& technique, const Behaviour& behaviour) {
  SNUG_CHECK(behaviour.key == technique.key, "the keys of a technique differ: {} and {}",
             technique.key, behaviour.key);
  recipe::add_technique(technique);
  all_behaviours().push_back(behaviour);
}

std::vector<const Behaviour*> behaviours_on(const recipe::Recipe& recipe) {
  const std::vector<const recipe::Technique*> on = recipe::techniques_on(recipe);
  std::vector<const Behaviour*> result;
  for (const Behaviour& behaviour : behaviours())
    if (std::ranges::find(on, behaviour.key, &recipe::Technique::key) != on.end())
      result.push_back(&behaviour);
  return result;
}

Simulation simulation_of(const recipe::Recipe& recipe) {
  Simulation simulation;
  for (const Behaviour* behaviour : behaviours_on(recipe))
    if (behaviour->simulate != nullptr) behaviour->simulate(simulation);
  return simulation;
}

namespace {

bool any_on(const recipe::Recipe& recipe, bool Behaviour::*trait) {
  return std::ranges::any_of(behaviours_on(recipe),
                             [&](const Behaviour* behaviour) { return behaviour->*trait; });
}

}  // namespace

bool updates_in_sweep(const recipe::Recipe& recipe) {
  return any_on(recipe, &Behaviour::updates_in_sweep);
}

bool updates_late(const recipe::Recipe& recipe) { return any_on(recipe, &Behaviour::updates_late); }

bool needs_own_stream(const recipe::Recipe& recipe) {
  return any_on(recipe, &Behaviour::needs_own_stream);
}

bool prefetches(const recipe::Recipe& recipe, const Engine& engine) {
  using recipe::Prefetch;
  if (recipe.offload_prefetch != Prefetch::Auto) return recipe.offload_prefetch == Prefetch::On;
  return ops::kernel_device(engine.units.front()->parameters().front()->value) == at::kCUDA;
}

}  // namespace snug::engine
