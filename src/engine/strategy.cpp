// SPDX-License-Identifier: Apache-2.0
#include "engine/strategy.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "recipe/mesh.h"
#include "recipe/numbers.h"

namespace snug::engine {
namespace {

using dist::Axis;
using exec::ShardingStage;

ShardingStage stage_of(recipe::Strategy strategy) {
  switch (strategy) {
    case recipe::Strategy::Ddp:
      return ShardingStage::Replicate;
    case recipe::Strategy::Zero1:
      return ShardingStage::OptimizerStates;
    case recipe::Strategy::Zero2:
      return ShardingStage::Gradients;
    case recipe::Strategy::Auto:
    case recipe::Strategy::Fsdp:
    case recipe::Strategy::Hybrid:
      break;
  }
  return ShardingStage::Weights;
}

dist::MeshShape mesh_of_text(const std::string& text, int64_t num_ranks) {
  dist::MeshShape mesh;
  if (const std::string fault = recipe::read_mesh(text, mesh); !fault.empty())
    throw UserError("mesh = {}: {}", text, fault);
  if (mesh.num_ranks() != num_ranks)
    throw UserError(
        "mesh = {}: is for {} devices, and this run has {}; give --devices and --num_nodes, or "
        "start as many processes",
        text, mesh.num_ranks(), num_ranks);
  return mesh;
}

// Puts all ranks on the strategy's own axis; hybrid shards within a machine, where links are fast,
// and replicates across machines.
dist::MeshShape mesh_of_strategy(recipe::Strategy strategy, int64_t num_ranks,
                                 int64_t ranks_per_node) {
  dist::MeshShape mesh;
  const bool is_hybrid = strategy == recipe::Strategy::Hybrid && ranks_per_node > 0;
  if (is_hybrid && num_ranks % ranks_per_node != 0)
    throw UserError(
        "strategy = hybrid: {} processes do not divide into machines with {} each; start the same "
        "number on every machine",
        num_ranks, ranks_per_node);
  const int64_t replicas = strategy == recipe::Strategy::Ddp ? num_ranks
                           : is_hybrid                       ? num_ranks / ranks_per_node
                                                             : 1;
  mesh[Axis::Replicate] = static_cast<int>(replicas);
  mesh[Axis::Shard] = static_cast<int>(num_ranks / replicas);
  return mesh;
}

}  // namespace

Strategy strategy_of(const recipe::Recipe& recipe, int64_t num_ranks, int64_t ranks_per_node) {
  const dist::MeshShape mesh =
      recipe.mesh.empty() ? mesh_of_strategy(recipe.strategy.value(), num_ranks, ranks_per_node)
                          : mesh_of_text(recipe.mesh, num_ranks);
  return {.mesh = mesh, .stage = stage_on(mesh, recipe)};
}

ShardingStage stage_on(const dist::MeshShape& mesh, const recipe::Recipe& recipe) {
  const ShardingStage stage = stage_of(recipe.strategy.value());
  return mesh.num_shards() == 1 ? ShardingStage::Replicate : stage;
}

int64_t named_ranks_per_node(const recipe::Recipe& recipe) {
  return recipe::parse_int(recipe.devices).value_or(1);
}

int64_t named_ranks(const recipe::Recipe& recipe) {
  return named_ranks_per_node(recipe) * recipe.num_nodes;
}

Strategy named_strategy(const recipe::Recipe& recipe) {
  return strategy_of(recipe, named_ranks(recipe), named_ranks_per_node(recipe));
}

exec::PipelineOrder pipeline_order(const recipe::Recipe& recipe) {
  return recipe.pipeline_schedule == recipe::PipelineSchedule::Gpipe
             ? exec::PipelineOrder::AllForwardFirst
             : exec::PipelineOrder::OneForwardOneBackward;
}

int64_t micro_batches_of_step(const recipe::Recipe& recipe, const dist::MeshShape& mesh) {
  const int64_t samples = recipe.train.global_batch_size / mesh.num_data_ranks();
  return std::max<int64_t>(
      1, (samples + recipe.train.micro_batch_size - 1) / recipe.train.micro_batch_size);
}

}  // namespace snug::engine
