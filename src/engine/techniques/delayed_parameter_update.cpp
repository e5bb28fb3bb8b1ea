// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/engine.h"
#include "engine/techniques/behaviour.h"
#include "engine/updaters.h"

namespace snug::engine {

Behaviour delayed_parameter_update() {
  return {
      .key = "delayed_parameter_update",
      .optimized =
          [](const Engine& engine) { return DelayedUpdate::aliases_of(engine.parameters); },
      // On cpu the update and the step would compete for the same cores.
      .updater = [](const Engine& engine,
                    std::vector<optim::NamedTensor> optimized) -> std::shared_ptr<exec::Updater> {
        return std::make_shared<DelayedUpdate>(engine, std::move(optimized),
                                               engine.device.is_cuda());
      },
      // Gradients are held through the next step.
      .simulate =
          [](Simulation& simulation) { simulation.steps = std::max<int64_t>(simulation.steps, 2); },
      .updates_late = true};
}

}  // namespace snug::engine
