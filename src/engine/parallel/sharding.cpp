// SPDX-License-Identifier: Apache-2.0
#include "engine/parallel/sharding.h"

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "core/memory/guards.h"
#include "engine/engine.h"
#include "engine/strategy.h"
#include "engine/techniques/behaviour.h"

namespace snug::engine {
namespace {

using exec::ShardingStage;

ShardingStage stage_of(const recipe::Recipe& recipe, const dist::Mesh& mesh) {
  const bool offloads = recipe.updates_on_host();
  switch (stage_on(mesh.shape(), recipe)) {
    case ShardingStage::Replicate:
      return ShardingStage::Replicate;
    case ShardingStage::OptimizerStates:
      // Gradients that are moved to the host need not be whole on the device.
      return offloads ? ShardingStage::Gradients : ShardingStage::OptimizerStates;
    case ShardingStage::Gradients:
      return ShardingStage::Gradients;
    case ShardingStage::Weights:
      break;
  }
  return ShardingStage::Weights;
}

// Groups a unit's parameters into flat tensors: each of one type, all trained or all frozen.
// Parameters common to several pipeline stages are separate, so that each stage splits them alike.
// With `computed_apart`, so are matrices, which are gathered in the type of the computation. So are
// experts under expert parallelism, whose gradients other ranks add up.
std::vector<std::vector<nn::Parameter*>> flat_groups(nn::Unit& unit, const Stage& stage,
                                                     bool with_frozen, bool computed_apart) {
  std::map<std::tuple<bool, bool, std::string, bool, bool, bool>, std::vector<nn::Parameter*>>
      groups;
  for (nn::Parameter* parameter : unit.parameters())
    if (parameter->trained || with_frozen)
      groups[{!parameter->trained, parameter->quantization.has_value(),
              stage.is_common(*parameter) ? parameter->name : "", parameter->held.has_value(),
              computed_apart && !parameter->is_rounded_when_used(), parameter->belongs_to_expert()}]
          .push_back(parameter);
  std::vector<std::vector<nn::Parameter*>> result;
  for (auto& [kind, parameters] : groups) result.push_back(std::move(parameters));
  return result;
}

// The type that weights are gathered in. DoRA's magnitudes are computed from whole weights.
at::ScalarType gathered_type(const recipe::Recipe& recipe, const Engine& engine) {
  return recipe.lora.use_dora ? engine.precision.parameters : engine.precision.compute;
}

exec::Sharding::FlatUnits make_flat_units(const recipe::Recipe& recipe, const Engine& engine,
                                          ShardingStage stage) {
  const bool is_cut = stage != ShardingStage::Replicate;
  const int parts = is_cut ? engine.mesh->shape().num_shards() : 1;
  const int part = is_cut ? engine.mesh->shape().shard_of(engine.mesh->rank()) : 0;
  const bool gathers = stage == ShardingStage::Weights;
  const at::ScalarType gathered = gathered_type(recipe, engine);
  const bool computed_apart = gathers && gathered != engine.precision.parameters;
  exec::Sharding::FlatUnits flats;
  for (nn::Unit* unit : engine.units) {
    const memory::UnitGuard tag(memory::unit_id(unit->name()));
    auto& own = flats.emplace_back();
    for (auto& parameters : flat_groups(*unit, engine.stage, gathers, computed_apart)) {
      const nn::Parameter& first = *parameters.front();
      const at::ScalarType stored = first.unquantized_type(engine.precision.parameters);
      const at::ScalarType computed =
          first.is_rounded_when_used() && !first.held ? gathered : stored;
      own.push_back(std::make_unique<exec::FlatUnit>(std::move(parameters), engine.device, stored,
                                                     part, parts));
      if (gathers) own.back()->keep_part_apart(/*on_device=*/!recipe.streams_weights(), computed);
    }
  }
  return flats;
}

}  // namespace

std::unique_ptr<exec::Sharding> make_sharding(const recipe::Recipe& recipe, const Engine& engine) {
  const dist::Mesh& mesh = *engine.mesh;
  if (mesh.shape().num_gradient_ranks() == 1) return nullptr;
  const ShardingStage stage = stage_of(recipe, mesh);
  const bool offloads = recipe.updates_on_host();
  const bool has_replicas = mesh.copies().size() > 1;
  return std::make_unique<exec::Sharding>(
      engine.units, make_flat_units(recipe, engine, stage), engine.mesh,
      exec::ShardingOptions{.stage = stage,
                            .forward_prefetch = recipe.forward_prefetch,
                            .backward_prefetch = recipe.backward_prefetch,
                            .overlap_reduction = recipe.overlap_reduction &&
                                                 !updates_in_sweep(recipe) &&
                                                 !(offloads && has_replicas),
                            .reduce_each = offloads});
}

}  // namespace snug::engine
