// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/pipeline.h"

namespace snug::exec {

std::vector<Sums> Pipeline::run(const MicroBatches& micro_batches) {
  all_ = &micro_batches;
  losses_.assign(static_cast<size_t>(micro_batches.count), {});
  const PipelineShape shape = links_.shape(micro_batches.count);
  const std::vector<PipelineStep> steps = pipeline_steps(shape, links_.stage());
  links_.begin(shape);
  const auto batch_of = [this](int64_t number) -> const MicroBatch& { return micro_batch(number); };
  for (size_t i = 0; i < steps.size(); ++i) {
    // The next step's state is received while this one is computed.
    for (size_t ahead = i; ahead < std::min(i + 2, steps.size()); ++ahead)
      links_.prepare(steps[ahead], batch_of);
    if (steps[i].way == Way::Forward)
      forward(steps[i]);
    else
      backward(steps[i]);
    const auto begun = begun_.find(steps[i].micro_batch);
    if (--begun->second.second == 0) begun_.erase(begun);
  }
  links_.finish();
  return losses_;
}

const MicroBatch& Pipeline::micro_batch(int64_t number) {
  const auto found = begun_.find(number);
  if (found != begun_.end()) return found->second.first;
  const int64_t steps = 2 * static_cast<int64_t>(executor_.ranges().size());
  auto& [made, left] = begun_[number];
  made = all_->make(number);
  made.number = number;
  left = steps;
  return made;
}

const UnitRange& Pipeline::range_at(int64_t place) const {
  return executor_.ranges()[static_cast<size_t>(place / links_.shape(0).stages)];
}

void Pipeline::forward(const PipelineStep& step) {
  const MicroBatch& batch = micro_batch(step.micro_batch);
  Executor::Flight& flight = flights_[{step.micro_batch, step.place}];
  links_.send(step, executor_.forward(flight, range_at(step.place), links_.take(step), batch));
}

void Pipeline::backward(const PipelineStep& step) {
  const auto flight = flights_.extract({step.micro_batch, step.place});
  const UnitRange& range = range_at(step.place);
  if (!executor_.has_backward(range)) return;
  const MicroBatch& batch = micro_batch(step.micro_batch);
  if (before_backward_) before_backward_();
  nn::State gradients =
      range.ends_model ? executor_.begin_backward(flight.mapped(), batch.pass) : links_.take(step);
  gradients = executor_.backward(flight.mapped(), std::move(gradients), batch);
  if (range.gradient_leaves)
    links_.send(step, links_.all_gradients(step, std::move(gradients), batch));
  if (range.ends_model)
    losses_[static_cast<size_t>(step.micro_batch)] = executor_.value_of(flight.mapped());
}

}  // namespace snug::exec
