// What the stages of a pipeline do, one after another: GPipe (Huang et al. 2019), one forward one
// backward (Narayanan et al. 2019, 2021), and both with several stretches of layers a stage.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace snug::exec {

enum class Way { Forward, Backward };

enum class PipelineOrder {
  OneForwardOneBackward,  // a backward as soon as it can be: few micro-batches are under way at
                          // once
  AllForwardFirst,        // GPipe: all of them are
};

// The model's units are dealt out in places 0 .. stages * chunks - 1, one after another: stage s
// has the places s, s + stages, s + 2 * stages …, its chunks 0, 1, 2 ….
struct PipelineShape {
  int64_t stages = 1;
  int64_t chunks = 1;
  int64_t micro_batches = 1;
  PipelineOrder order = PipelineOrder::OneForwardOneBackward;

  int64_t num_places() const { return stages * chunks; }
};

// One micro-batch through one place.
struct PipelineStep {
  Way way = Way::Forward;
  int64_t micro_batch = 0;
  int64_t place = 0;

  bool operator==(const PipelineStep&) const = default;
  auto operator<=>(const PipelineStep&) const = default;
};

// What a stage does, in order. The steps of all stages fit together: if each sends on what a step
// gave before it begins the next one, waits before it sends for what it sent that way last, and has
// asked for what the next step needs while a step runs, then none waits for ever.
std::vector<PipelineStep> pipeline_steps(const PipelineShape& shape, int64_t stage);

// How long the stages need, in units of what one of them computes: 1 where none ever waits. A
// backward takes as long as `backward` forwards.
double pipeline_length(const PipelineShape& shape, double backward = 2);

}  // namespace snug::exec
