// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/policies/optimizer_in_backward.h"

#include <algorithm>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/exec/policies/home_copies.h"
#include "engine/exec/policies/sharding.h"
#include "engine/techniques/behaviour.h"

namespace snug::engine {
namespace {

void refuse_common_parameters(const recipe::Recipe& /*recipe*/, const models::Model& /*model*/,
                              const Engine& engine) {
  for (const CommonParameter& common : engine.stage.common)
    if (common.parameter->trained)
      throw UserError(
          "optimizer_in_backward = true: {} is on {} stages of the pipeline, whose gradients must "
          "be summed before the update; use optimizer_in_backward or the pipeline, not both",
          common.parameter->name, common.stages.size());
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

std::shared_ptr<exec::Policy> update_in_backward(const recipe::Recipe& /*recipe*/, Engine& engine) {
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

}  // namespace

Behaviour optimizer_in_backward() {
  return {.key = "optimizer_in_backward",
          .check = refuse_common_parameters,
          .policy = update_in_backward,
          // The last micro-batch frees gradients: one more, in between, keeps all to its end.
          .simulate =
              [](Simulation& simulation) {
                simulation.micro_batches = std::max<int64_t>(simulation.micro_batches, 3);
              },
          .updates_in_sweep = true};
}

}  // namespace snug::engine
