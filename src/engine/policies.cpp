// SPDX-License-Identifier: Apache-2.0
#include "engine/policies.h"

#include <algorithm>

#include "base/error.h"
#include "core/ops/device/device.h"
#include "engine/engine.h"
#include "engine/exec/policies/activation_checkpointing.h"
#include "engine/exec/policies/activation_offload.h"
#include "engine/exec/policies/cast_cache.h"
#include "engine/exec/policies/expert_streaming.h"
#include "engine/exec/policies/optimizer_in_backward.h"
#include "engine/exec/policies/optimizer_offload.h"
#include "engine/exec/policies/weight_streaming.h"
#include "recipe/selection.h"
#include "recipe/tables/techniques.h"

namespace snug::engine {
namespace {

std::vector<bool> of_stage(const std::vector<bool>& model, const Stage& stage) {
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

// Prefetch if copies run beside the computation; on a cpu only if the recipe asks for it.
bool prefetches(const recipe::Recipe& recipe, const Engine& engine) {
  using recipe::Prefetch;
  if (recipe.offload_prefetch != Prefetch::Auto) return recipe.offload_prefetch == Prefetch::On;
  return ops::kernel_device(engine.units.front()->parameters().front()->value) == at::kCUDA;
}

using Made = std::shared_ptr<exec::Policy>;

Made activation_checkpointing(const recipe::Recipe& recipe, Engine& engine) {
  if (recipe::checkpointing_of(recipe) == recipe::Checkpointing::Selective)
    return std::make_shared<exec::SelectiveCheckpointing>();
  return std::make_shared<exec::ActivationCheckpointing>(
      of_stage(checkpointed_units(recipe, engine.stage.kinds), engine.stage));
}

Made activation_offload(const recipe::Recipe& recipe, Engine& engine) {
  return std::make_shared<exec::ActivationOffload>(*engine.copies, prefetches(recipe, engine));
}

Made optimizer_in_backward(const recipe::Recipe& /*recipe*/, Engine& engine) {
  exec::OptimizerInBackward::Publish publish;
  if (engine.publishes_weights)
    publish.unit = [&engine](int64_t i) {
      exec::send_weights_from_home(engine.updated[static_cast<size_t>(i)], *engine.copies);
    };
  // Weights from the host are there then: OptimizerOffload waits for all copies.
  if (engine.sharding != nullptr) publish.all = [&engine] { engine.sharding->publish(); };
  auto policy = std::make_shared<exec::OptimizerInBackward>(
      *engine.optimizer, engine.parameters, engine.counted, parameter_ranges(engine),
      engine.updates_on_host, std::move(publish));
  engine.updater = policy;
  return policy;
}

// An update within the backward needs its gradients at once.
Made optimizer_offload(const recipe::Recipe& recipe, Engine& engine) {
  return std::make_shared<exec::OptimizerOffload>(
      engine.updated, *engine.copies, prefetches(recipe, engine) && !recipe.optimizer_in_backward);
}

// With sharding, gathering brings shards from the host to the device.
Made weight_streaming(const recipe::Recipe& recipe, Engine& engine) {
  if (engine.sharding != nullptr) return nullptr;
  return std::make_shared<exec::WeightStreaming>(
      engine.units, *engine.copies, prefetches(recipe, engine), recipe.expert_streaming);
}

Made expert_streaming(const recipe::Recipe& recipe, Engine& engine) {
  return std::make_shared<exec::ExpertStreaming>(engine.units, *engine.copies,
                                                 prefetches(recipe, engine));
}

Made cast_cache(const recipe::Recipe& /*recipe*/, Engine& engine) {
  return std::make_shared<exec::CastCache>(engine.units);
}

using recipe::Technique;

// In the order in which they nest.
constexpr std::pair<Technique, Made (*)(const recipe::Recipe&, Engine&)> kPolicies[] = {
    {Technique::ActivationCheckpointing, activation_checkpointing},
    {Technique::ActivationOffload, activation_offload},
    {Technique::OptimizerInBackward, optimizer_in_backward},
    {Technique::OptimizerOffload, optimizer_offload},
    {Technique::WeightStreaming, weight_streaming},
    {Technique::ExpertStreaming, expert_streaming},
    {Technique::CastCache, cast_cache},
};

}  // namespace

std::vector<bool> checkpointed_units(const recipe::Recipe& recipe,
                                     const std::vector<nn::UnitKind>& kinds) {
  if (recipe::checkpointing_of(recipe) == recipe::Checkpointing::All)
    return std::vector<bool>(kinds.size(), true);
  const auto blocks = recipe::chosen_blocks(recipe.activation_checkpointing,
                                            std::ranges::count(kinds, nn::UnitKind::Block));
  std::vector<bool> units;
  auto block = blocks.begin();
  for (const nn::UnitKind kind : kinds) units.push_back(kind == nn::UnitKind::Block && *block++);
  return units;
}

exec::Policies make_policies(const recipe::Recipe& recipe, Engine& engine,
                             std::unique_ptr<exec::Sharding> sharding) {
  exec::Policies policies;
  for (const auto& [technique, make] : kPolicies)
    if (is_on(recipe::traits_of(technique), recipe))
      if (Made policy = make(recipe, engine)) policies.push_back(std::move(policy));
  if (sharding != nullptr) policies.push_back(std::move(sharding));
  return policies;
}

}  // namespace snug::engine
