// Runs one optimizer step on one stage of a pipeline: the schedule's steps in order, each a forward
// or backward of one chunk by the executor, on states received from the neighbouring stages.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "engine/exec/executor.h"
#include "engine/exec/stage_links.h"

namespace snug::exec {

class Pipeline {
 public:
  // `before_backward` is called when a backward begins; it may be empty.
  Pipeline(Executor& executor, StageLinks& links, const std::function<void()>& before_backward)
      : executor_(executor), links_(links), before_backward_(before_backward) {}

  // The objective of each micro-batch; empty on a stage without the model's last unit.
  std::vector<Sums> run(const MicroBatches& micro_batches);

 private:
  const MicroBatch& micro_batch(int64_t number);
  void forward(const PipelineStep& step);
  void backward(const PipelineStep& step);
  const UnitRange& range_at(int64_t place) const;

  Executor& executor_;
  StageLinks& links_;
  const std::function<void()>& before_backward_;
  const MicroBatches* all_ = nullptr;
  std::vector<Sums> losses_;
  // Micro-batches in flight on this stage, by number, each with its number of steps left.
  std::map<int64_t, std::pair<MicroBatch, int64_t>> begun_;
  std::map<std::pair<int64_t, int64_t>, Executor::Flight> flights_;  // by micro-batch and place
};

}  // namespace snug::exec
