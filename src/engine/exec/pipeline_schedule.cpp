// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/pipeline_schedule.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace snug::exec {
namespace {

// All forwards (or all backwards) of a stage, in order. With several chunks, a group of as many
// micro-batches as there are stages goes through one chunk after the other before the next group.
std::vector<PipelineStep> one_way(const PipelineShape& shape, int64_t stage, Way way) {
  std::vector<PipelineStep> steps;
  const int64_t group = shape.chunks == 1 ? shape.micro_batches : shape.stages;
  for (int64_t first = 0; first < shape.micro_batches; first += group)
    for (int64_t i = 0; i < shape.chunks; ++i) {
      const int64_t chunk = way == Way::Forward ? i : shape.chunks - 1 - i;
      for (int64_t k = first; k < std::min(first + group, shape.micro_batches); ++k)
        steps.push_back({way, k, chunk * shape.stages + stage});
    }
  return steps;
}

// The number of forwards before the first backward (warm-up).
size_t num_ahead(const PipelineShape& shape, int64_t stage, size_t all) {
  if (shape.order == PipelineOrder::AllForwardFirst) return all;
  const int64_t after = shape.stages - 1 - stage;
  const int64_t ahead = shape.chunks == 1 ? after : 2 * after + (shape.chunks - 1) * shape.stages;
  return std::min(all, static_cast<size_t>(ahead));
}

}  // namespace

std::vector<PipelineStep> pipeline_steps(const PipelineShape& shape, int64_t stage) {
  SNUG_CHECK(stage >= 0 && stage < shape.stages && shape.chunks > 0, "stage {} of {}", stage,
             shape.stages);
  // The schedule is made for whole groups. Micro-batches that the last group lacks are removed at
  // the end, which does not change the order of the others.
  PipelineShape whole = shape;
  if (shape.chunks > 1)
    whole.micro_batches = (shape.micro_batches + shape.stages - 1) / shape.stages * shape.stages;
  const std::vector<PipelineStep> forwards = one_way(whole, stage, Way::Forward);
  const std::vector<PipelineStep> backwards = one_way(whole, stage, Way::Backward);
  const size_t ahead = num_ahead(whole, stage, forwards.size());
  std::vector<PipelineStep> steps;
  const auto add = [&](const PipelineStep& step) {
    if (step.micro_batch < shape.micro_batches) steps.push_back(step);
  };
  for (size_t i = 0; i < ahead; ++i) add(forwards[i]);
  for (size_t i = ahead; i < forwards.size(); ++i) {
    add(forwards[i]);
    add(backwards[i - ahead]);
  }
  for (size_t i = forwards.size() - ahead; i < backwards.size(); ++i) add(backwards[i]);
  return steps;
}

double pipeline_length(const PipelineShape& shape, double backward) {
  if (shape.stages == 1) return 1;
  std::vector<std::vector<PipelineStep>> steps;
  for (int64_t stage = 0; stage < shape.stages; ++stage)
    steps.push_back(pipeline_steps(shape, stage));
  std::map<PipelineStep, double> ends;
  std::vector<size_t> next(steps.size());
  std::vector<double> now(steps.size());
  // A step begins when its stage is free and its input has arrived.
  const auto try_step = [&](size_t stage) {
    if (next[stage] == steps[stage].size()) return false;
    const PipelineStep& step = steps[stage][next[stage]];
    const bool is_forward = step.way == Way::Forward;
    const int64_t from = is_forward ? step.place - 1 : step.place + 1;
    if (from >= 0 && from < shape.num_places()) {
      const auto needed = ends.find({step.way, step.micro_batch, from});
      if (needed == ends.end()) return false;
      now[stage] = std::max(now[stage], needed->second);
    }
    ends[step] = now[stage] += is_forward ? 1 : backward;
    ++next[stage];
    return true;
  };
  for (bool moves = true; moves;) {
    moves = false;
    for (size_t stage = 0; stage < steps.size(); ++stage)
      while (try_step(stage)) moves = true;
  }
  const double work = static_cast<double>(shape.micro_batches * shape.chunks) * (1 + backward);
  return *std::max_element(now.begin(), now.end()) / work;
}

}  // namespace snug::exec
