// How a recipe's devices share the work: their mesh, and what is sharded along its shard and
// context axes. DDP, ZeRO 1 to 3, FSDP and hybrid sharding are such pairs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/dist/mesh.h"
#include "engine/exec/pipeline_schedule.h"
#include "engine/exec/sharding_stage.h"
#include "recipe/recipe.h"

namespace snug::engine {

struct Strategy {
  dist::MeshShape mesh;
  exec::ShardingStage stage = exec::ShardingStage::Replicate;  // Replicate with one shard

  bool operator==(const Strategy&) const = default;
};

// For `num_ranks` processes, `ranks_per_node` on each machine (0: all on one). Throws UserError if
// the recipe's mesh has another number. Used to make the mesh; code that has one calls stage_on().
Strategy strategy_of(const recipe::Recipe& recipe, int64_t num_ranks, int64_t ranks_per_node);

// What the recipe shards on an existing mesh.
exec::ShardingStage stage_on(const dist::MeshShape& mesh, const recipe::Recipe& recipe);

// The number of processes that a recipe names, in all and per machine; "auto" counts as one.
int64_t named_ranks(const recipe::Recipe& recipe);
int64_t named_ranks_per_node(const recipe::Recipe& recipe);
// The strategy for that many processes.
Strategy named_strategy(const recipe::Recipe& recipe);

exec::PipelineOrder pipeline_order(const recipe::Recipe& recipe);

// Micro-batches of one optimizer step on one rank.
int64_t micro_batches_of_step(const recipe::Recipe& recipe, const dist::MeshShape& mesh);

}  // namespace snug::engine
