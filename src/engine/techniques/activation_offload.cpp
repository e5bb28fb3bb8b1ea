// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/policies/activation_offload.h"

#include "engine/engine.h"
#include "engine/techniques/behaviour.h"

namespace snug::engine {

Behaviour activation_offload() {
  return {
      .key = "activation_offload",
      .policy = [](const recipe::Recipe& recipe, Engine& engine) -> std::shared_ptr<exec::Policy> {
        return std::make_shared<exec::ActivationOffload>(*engine.copies,
                                                         prefetches(recipe, engine));
      }};
}

}  // namespace snug::engine
