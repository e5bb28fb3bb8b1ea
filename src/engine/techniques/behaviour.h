// What a technique does in a run, in a file of its own: joined by key to what recipes, searches and
// help know of it (recipe/techniques/<key>.cpp).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/optim/optimizer.h"
#include "engine/exec/policy.h"
#include "engine/exec/updater.h"
#include "models/model.h"
#include "recipe/recipe.h"
#include "recipe/techniques/technique.h"

namespace snug::engine {

struct Engine;

// What a plan runs to see all that a run of any length takes.
struct Simulation {
  int64_t micro_batches = 2;      // with accumulation the second meets the first one's gradients
  int64_t steps = 1;              // of which the last is looked at
  int64_t steps_on_gpu = 1;       // on a GPU, if more
  bool every_validation = false;  // also of micro-batches that are smaller than training's
};

struct Behaviour {
  std::string_view key;
  // Refuses a model or a layout that it does not work with, before weights are allocated: throws
  // UserError. `engine` has its mesh, stage and units.
  void (*check)(const recipe::Recipe&, const models::Model&, const Engine&) = nullptr;
  // Its policy. Units, parameters and optimizer of the engine exist. Null: none is needed here. One
  // that updates the weights becomes engine.updater.
  std::shared_ptr<exec::Policy> (*policy)(const recipe::Recipe&, Engine&) = nullptr;
  // An updater in place of the one after the backward, and the tensors that its optimizer works on
  // in place of the engine's parameters.
  std::vector<optim::NamedTensor> (*optimized)(const Engine&) = nullptr;
  std::shared_ptr<exec::Updater> (*updater)(const Engine&,
                                            std::vector<optim::NamedTensor> optimized) = nullptr;
  // Of the engine that is complete, on a GPU or a plan of one.
  void (*complete_on_gpu)(Engine&) = nullptr;
  // Raises what a plan runs.
  void (*simulate)(Simulation&) = nullptr;
  // What to say when a run has ended; empty: nothing.
  std::string (*note)(const Engine&) = nullptr;
  // Of its updater, as exec::Updater says; plans of time and layouts ask before there is one.
  bool updates_in_sweep = false, updates_late = false;
  bool needs_own_stream = false;  // on a GPU
};

// In the order of recipe/techniques/all.def, in which policies nest, and then those from outside.
const std::vector<Behaviour>& behaviours();
// Adds one from outside, before any recipe is read, to what recipes know and to what runs do: its
// option is read, printed and checked like any other, and its policy is part of plans. Throws
// UserError for a key that an option has already.
void add_technique(const recipe::Technique& technique, const Behaviour& behaviour);
// Those of the techniques that are on.
std::vector<const Behaviour*> behaviours_on(const recipe::Recipe& recipe);

Simulation simulation_of(const recipe::Recipe& recipe);
bool updates_in_sweep(const recipe::Recipe& recipe);
bool updates_late(const recipe::Recipe& recipe);
bool needs_own_stream(const recipe::Recipe& recipe);

// Whether copies between host and device run ahead of their use: where they run beside the
// computation, on a cpu only if the recipe asks for it.
bool prefetches(const recipe::Recipe& recipe, const Engine& engine);

// The units of a model whose forward activation checkpointing repeats; a recipe counts blocks.
std::vector<bool> checkpointed_units(const recipe::Recipe& recipe,
                                     const std::vector<nn::UnitKind>& kinds);

}  // namespace snug::engine
