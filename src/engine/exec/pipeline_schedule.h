// The order of forwards and backwards on each stage of a pipeline: GPipe (Huang et al. 2019) or
// 1F1B, one forward one backward (Narayanan et al. 2019), each also interleaved, with several
// chunks of layers per stage (Narayanan et al. 2021).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace snug::exec {

enum class Way { Forward, Backward };

enum class PipelineOrder {
  OneForwardOneBackward,  // a backward as soon as it can be: few micro-batches are under way at
                          // once
  AllForwardFirst,        // GPipe: every forward, then every backward
};

// The model's units are split into stages * chunks consecutive ranges, called places (virtual
// stages). Stage s runs the places s, s + stages, s + 2 * stages, … as its chunks 0, 1, 2, ….
struct PipelineShape {
  int64_t stages = 1;
  int64_t chunks = 1;
  int64_t micro_batches = 1;
  PipelineOrder order = PipelineOrder::OneForwardOneBackward;

  int64_t num_places() const { return stages * chunks; }
};

// The forward or backward of one micro-batch through one place.
struct PipelineStep {
  Way way = Way::Forward;
  int64_t micro_batch = 0;
  int64_t place = 0;

  bool operator==(const PipelineStep&) const = default;
  auto operator<=>(const PipelineStep&) const = default;
};

// The steps of one stage, in order. The stages' orders cannot deadlock as long as each stage (1)
// sends a step's result before it begins the next step, (2) first waits for its previous send in
// that direction, and (3) starts to receive the next step's input while a step runs.
std::vector<PipelineStep> pipeline_steps(const PipelineShape& shape, int64_t stage);

// Time of an optimizer step relative to the computation of one stage: 1 if no stage ever waits. A
// backward takes as long as `backward` forwards.
double pipeline_length(const PipelineShape& shape, double backward = 2);

}  // namespace snug::exec
