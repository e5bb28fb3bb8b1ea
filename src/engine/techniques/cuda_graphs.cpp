// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "engine/engine.h"
#include "engine/exec/recorded_passes.h"
#include "engine/techniques/behaviour.h"

namespace snug::engine {
namespace {

// Whether recording was of use.
std::string use_of_recording(const Engine& engine) {
  const exec::RecordedPasses* recorded = engine.executor->recorded();
  if (recorded == nullptr) return "cuda_graphs: this run is on a CPU, which has none";
  const auto& [kinds, launched, all] = recorded->counts();
  if (launched > 0)
    return fmt::format("cuda_graphs: {} of {} micro-batches ran as recorded, in {} graph{}",
                       launched, all, kinds, kinds == 1 ? "" : "s");
  return fmt::format(
      "cuda_graphs: of {} micro-batches nothing was recorded: no two consecutive steps had "
      "micro-batches of the same shape (samples of the same lengths with as many tokens to learn, "
      "as texts cut at train.max_seq_length)",
      all);
}

}  // namespace

Behaviour cuda_graphs() {
  return {.key = "cuda_graphs",
          .complete_on_gpu = [](Engine& engine) { engine.executor->record_passes(); },
          // Passes are recorded in the third step, and what they take stays taken meanwhile.
          .simulate =
              [](Simulation& simulation) {
                simulation.steps_on_gpu = std::max<int64_t>(simulation.steps_on_gpu, 3);
                simulation.every_validation = true;
              },
          .note = use_of_recording,
          .needs_own_stream = true};
}

}  // namespace snug::engine
