// How a recipe's devices share the work: the mesh they form, and what of a model is cut into parts
// along its shard and context axes. DDP, ZeRO 1 to 3, FSDP and hybrid sharding are such pairs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "config/recipe.h"
#include "dist/mesh.h"
#include "exec/pipeline_schedule.h"
#include "exec/sharding_stage.h"

namespace snug::setup {

struct Strategy {
  dist::MeshShape mesh;
  exec::ShardingStage stage = exec::ShardingStage::Replicate;  // Replicate where there is one shard

  bool operator==(const Strategy&) const = default;
};

// For `num_ranks` processes, `ranks_per_node` on each machine (0: all on one). Throws UserError
// where the recipe's mesh has another number of them. For whoever makes the mesh: what has one
// asks stage_on().
Strategy strategy_of(const config::Recipe& recipe, int64_t num_ranks, int64_t ranks_per_node);

// What the recipe cuts into the shards of a mesh that is there.
exec::ShardingStage stage_on(const dist::MeshShape& mesh, const config::Recipe& recipe);

// How many processes a recipe names, and how many of them on each machine; "auto" is one.
int64_t named_ranks(const config::Recipe& recipe);
int64_t named_ranks_per_node(const config::Recipe& recipe);
// For as many as it names.
Strategy named_strategy(const config::Recipe& recipe);

exec::PipelineOrder pipeline_order(const config::Recipe& recipe);

// Of one optimizer step, on one rank.
int64_t micro_batches_of_step(const config::Recipe& recipe, const dist::MeshShape& mesh);

}  // namespace snug::setup
