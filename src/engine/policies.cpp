// SPDX-License-Identifier: Apache-2.0
#include "engine/policies.h"

#include <algorithm>

#include "base/error.h"
#include "core/ops/device/device.h"
#include "engine/engine.h"
#include "engine/exec/policies/activation_checkpointing.h"
#include "engine/exec/policies/activation_offload.h"
#include "engine/exec/policies/optimizer_in_backward.h"
#include "engine/exec/policies/optimizer_offload.h"
#include "engine/exec/policies/weight_streaming.h"
#include "recipe/unit_choice.h"

namespace snug::engine {
namespace {

// By unit of the stage. A recipe counts blocks: the model's units between the embedding and the
// head.
std::vector<bool> checkpointed_units(const std::string& choice, const Stage& stage) {
  const auto num_units = static_cast<size_t>(stage.layout.begins.back());
  std::vector<bool> model(num_units, choice == "all" && num_units >= 2);
  if (num_units >= 2) {
    const auto blocks = recipe::chosen_blocks(choice, static_cast<int64_t>(num_units) - 2);
    std::copy(blocks.begin(), blocks.end(), model.begin() + 1);
  }
  std::vector<bool> units;
  for (const int64_t position : stage.positions)
    units.push_back(position >= 0 && model[static_cast<size_t>(position)]);
  return units;
}

std::vector<optim::Range> parameter_ranges(const Engine& engine) {
  std::vector<optim::Range> ranges;
  size_t next = 0;
  for (const auto& own : engine.updated) {
    ranges.push_back({next, next + own.size()});
    next += own.size();
  }
  return ranges;
}

std::unique_ptr<exec::OptimizerInBackward> optimizer_in_backward(Engine& engine) {
  std::function<void(int64_t)> updated;
  if (engine.publishes_weights)
    updated = [parameters = engine.updated, copies = engine.copies.get()](int64_t i) {
      exec::send_weights_from_home(parameters[static_cast<size_t>(i)], *copies);
    };
  return std::make_unique<exec::OptimizerInBackward>(*engine.optimizer, engine.parameters,
                                                     engine.counted, parameter_ranges(engine),
                                                     engine.updates_on_host, updated);
}

// Prefetch if copies run beside the computation; on a cpu only if the recipe asks for it.
bool prefetches(const recipe::Recipe& recipe, const Engine& engine) {
  using recipe::Prefetch;
  if (recipe.offload_prefetch != Prefetch::Auto) return recipe.offload_prefetch == Prefetch::On;
  return ops::kernel_device(engine.units.front()->parameters().front()->value) == at::kCUDA;
}

}  // namespace

std::vector<std::unique_ptr<exec::Policy>> make_policies(const recipe::Recipe& recipe,
                                                         Engine& engine,
                                                         std::unique_ptr<exec::Sharding> sharding) {
  std::vector<std::unique_ptr<exec::Policy>> policies;
  const std::string& checkpointing = recipe.activation_checkpointing;
  if (checkpointing == "selective")
    policies.push_back(std::make_unique<exec::SelectiveCheckpointing>());
  else if (checkpointing != "none")
    policies.push_back(std::make_unique<exec::ActivationCheckpointing>(
        checkpointed_units(checkpointing, engine.stage)));
  const bool prefetch = prefetches(recipe, engine);
  if (recipe.activation_offload)
    policies.push_back(std::make_unique<exec::ActivationOffload>(*engine.copies, prefetch));
  if (recipe.optimizer_in_backward) {
    auto policy = optimizer_in_backward(engine);
    engine.in_backward = policy.get();
    policies.push_back(std::move(policy));
  }
  // An update within the backward needs its gradients at once.
  if (recipe.updates_on_host())
    policies.push_back(std::make_unique<exec::OptimizerOffload>(
        engine.updated, *engine.copies, prefetch && !recipe.optimizer_in_backward));
  // With sharding, gathering brings shards from the host to the device.
  if (recipe.weight_streaming && sharding == nullptr)
    policies.push_back(
        std::make_unique<exec::WeightStreaming>(engine.units, *engine.copies, prefetch));
  if (sharding != nullptr) policies.push_back(std::move(sharding));
  return policies;
}

}  // namespace snug::engine
