// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/policies/optimizer_offload.h"

#include "engine/engine.h"
#include "engine/techniques/behaviour.h"

namespace snug::engine {

Behaviour optimizer_offload() {
  return {
      .key = "optimizer_offload",
      // An update within the backward needs its gradients at once.
      .policy = [](const recipe::Recipe& recipe, Engine& engine) -> std::shared_ptr<exec::Policy> {
        return std::make_shared<exec::OptimizerOffload>(
            engine.updated, *engine.copies,
            prefetches(recipe, engine) && !updates_in_sweep(recipe));
      }};
}

}  // namespace snug::engine
