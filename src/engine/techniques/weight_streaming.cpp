// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/policies/weight_streaming.h"

#include "base/error.h"
#include "engine/engine.h"
#include "engine/strategy.h"
#include "engine/techniques/behaviour.h"

namespace snug::engine {
namespace {

void refuse_whole_copies(const recipe::Recipe& recipe, const models::Model& /*model*/,
                         const Engine& engine) {
  const dist::MeshShape& shape = engine.mesh->shape();
  if (shape.num_gradient_ranks() > 1 && stage_on(shape, recipe) != exec::ShardingStage::Weights)
    throw UserError(
        "weight_streaming = true: on several devices weights in host memory must be sharded; use "
        "{}",
        recipe.mesh.empty() ? "--strategy fsdp" : "--strategy fsdp with an axis fsdp in --mesh");
}

// With sharding, gathering brings shards from the host to the device.
std::shared_ptr<exec::Policy> stream_units(const recipe::Recipe& recipe, Engine& engine) {
  if (engine.sharding != nullptr) return nullptr;
  return std::make_shared<exec::WeightStreaming>(
      engine.units, *engine.copies, prefetches(recipe, engine), recipe.expert_streaming);
}

}  // namespace

Behaviour weight_streaming() {
  return {.key = "weight_streaming", .check = refuse_whole_copies, .policy = stream_units};
}

}  // namespace snug::engine
