// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/policies/expert_streaming.h"

#include "base/error.h"
#include "engine/engine.h"
#include "engine/techniques/behaviour.h"

namespace snug::engine {
namespace {

// Searches may try it with any model.
void refuse_models_without_experts(const recipe::Recipe& recipe, const models::Model& model,
                                   const Engine& /*engine*/) {
  if (recipe.given("expert_streaming") && model.routing().num_experts == 0)
    throw UserError(
        "expert_streaming = true: this model has no experts; leave it out (weight_streaming copies "
        "its weights block by block)");
}

}  // namespace

Behaviour expert_streaming() {
  return {
      .key = "expert_streaming",
      .check = refuse_models_without_experts,
      .policy = [](const recipe::Recipe& recipe, Engine& engine) -> std::shared_ptr<exec::Policy> {
        return std::make_shared<exec::ExpertStreaming>(engine.units, *engine.copies,
                                                       prefetches(recipe, engine));
      }};
}

}  // namespace snug::engine
