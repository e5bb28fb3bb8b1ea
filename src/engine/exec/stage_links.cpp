// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/stage_links.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "base/error.h"
#include "core/memory/guards.h"

namespace snug::exec {
namespace {

constexpr size_t kMostShapes = 256;  // batch sizes whose shapes are cached

// The batch sizes that determine a state's shapes.
std::vector<int64_t> signature(const MicroBatch& micro_batch) {
  const nn::Batch& b = micro_batch.batch;
  const auto count = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.numel() : -1;
  };
  return {
      count(b.input_ids), count(b.cu_seqlens),   b.source ? count(b.source->input_ids) : -1,
      count(b.pixels),    count(b.picture_rows), static_cast<int64_t>(micro_batch.pass.compute)};
}

// A gradient has the type of its tensor.
at::Tensor memory_like(const at::Tensor& shape, at::Device device) {
  return at::empty(shape.sizes(), shape.options().device(device));
}

}  // namespace

StageLinks::StageLinks(std::shared_ptr<dist::Mesh> mesh, at::Device device, Options options)
    : mesh_(std::move(mesh)),
      device_(device),
      options_(std::move(options)),
      num_stages_(mesh_->size(dist::Axis::Pipeline)),
      stage_(mesh_->coordinate(dist::Axis::Pipeline)) {}

PipelineShape StageLinks::shape(int64_t micro_batches) const {
  return {.stages = num_stages_,
          .chunks = options_.chunks,
          .micro_batches = micro_batches,
          .order = options_.order};
}

bool StageLinks::source_of(const PipelineStep& step, PipelineStep& source) const {
  source = step;
  source.place += step.way == Way::Forward ? -1 : 1;
  const bool exists = source.place >= 0 && source.place < num_stages_ * options_.chunks;
  return exists && (step.way == Way::Forward || has_backward(step.place));
}

bool StageLinks::target_of(const PipelineStep& step, PipelineStep& target) const {
  target = step;
  target.place += step.way == Way::Forward ? 1 : -1;
  const bool exists = target.place >= 0 && target.place < num_stages_ * options_.chunks;
  return exists && (step.way == Way::Forward || has_backward(target.place));
}

void StageLinks::begin(const PipelineShape& shape) {
  expected_.assign(static_cast<size_t>(num_stages_), {});
  for (int64_t sender = 0; sender < num_stages_; ++sender)
    for (const PipelineStep& step : pipeline_steps(shape, sender)) {
      PipelineStep target;
      if (target_of(step, target) && stage_of(target.place) == stage_)
        expected_[static_cast<size_t>(sender)].push_back(target);
    }
}

void StageLinks::prepare(const PipelineStep& step, const MicroBatchOf& micro_batch) {
  PipelineStep source;
  if (!source_of(step, source) || arriving_.contains(step)) return;
  std::deque<PipelineStep>& queue = expected_[static_cast<size_t>(stage_of(source.place))];
  for (bool started = false; !started;) {
    SNUG_CHECK(!queue.empty(), "no stage sends the input of micro-batch {} at place {}",
               step.micro_batch, step.place);
    const PipelineStep next = queue.front();
    queue.pop_front();
    start_receive(next, micro_batch(next.micro_batch));
    started = next == step;
  }
}

const std::vector<nn::State>& StageLinks::shapes_for(const MicroBatch& micro_batch) {
  const std::vector<int64_t> key = signature(micro_batch);
  const auto found = shapes_.find(key);
  if (found != shapes_.end()) return found->second;
  if (shapes_.size() >= kMostShapes) shapes_.clear();
  return shapes_[key] = options_.shapes(micro_batch);
}

void StageLinks::start_receive(const PipelineStep& step, const MicroBatch& micro_batch) {
  PipelineStep source;
  source_of(step, source);
  const bool is_forward = step.way == Way::Forward;
  const auto from = static_cast<int>(stage_of(source.place));
  // A place's input is the output of the place before it; its gradient goes back the same way.
  const int64_t border = is_forward ? step.place : source.place;
  const memory::CategoryGuard category(is_forward ? memory::Category::Activations
                                                  : memory::Category::Workspace);
  Arriving& arriving = arriving_[step];
  arriving.group = &mesh_->between_stages(from, static_cast<int>(stage_));
  for (const auto& [name, tensor] :
       shapes_for(micro_batch)[static_cast<size_t>(border)].entries()) {
    if (!is_forward && !tensor.is_floating_point()) continue;
    at::Tensor memory = memory_like(tensor, device_);
    arriving.tickets.push_back(arriving.group->receive(memory, from));
    arriving.state.set(name, std::move(memory));
  }
}

nn::State StageLinks::take(const PipelineStep& step) {
  const auto found = arriving_.extract(step);
  if (found.empty()) return {};
  Arriving& arriving = found.mapped();
  for (auto& ticket : arriving.tickets) arriving.group->wait(std::exchange(ticket, {}));
  return std::move(arriving.state);
}

void StageLinks::send(const PipelineStep& step, nn::State state) {
  PipelineStep target;
  if (!target_of(step, target)) return;
  Leaving& leaving = leaving_[static_cast<size_t>(step.way)];
  wait_for(leaving);
  const auto to = static_cast<int>(stage_of(target.place));
  leaving.group = &mesh_->between_stages(static_cast<int>(stage_), to);
  for (const auto& [name, tensor] : state.entries())
    leaving.tickets.push_back(leaving.group->send(tensor.detach().contiguous(), to));
}

nn::State StageLinks::all_gradients(const PipelineStep& step, nn::State gradients,
                                    const MicroBatch& micro_batch) {
  nn::State all;
  const nn::State& border = shapes_for(micro_batch)[static_cast<size_t>(step.place)];
  for (const auto& [name, tensor] : border.entries()) {
    if (!tensor.is_floating_point()) continue;
    // In the order in which the receiver expects them.
    all.set(name, gradients.has(name)
                      ? gradients.at(name)
                      : at::zeros(tensor.sizes(), tensor.options().device(device_)));
  }
  return all;
}

void StageLinks::wait_for(Leaving& leaving) {
  for (auto& ticket : leaving.tickets) leaving.group->wait(std::exchange(ticket, {}));
  leaving = {};
}

void StageLinks::finish() {
  for (Leaving& leaving : leaving_) wait_for(leaving);
}

// Other ranks' sends cannot be cancelled, so with several processes the run ends here.
void StageLinks::abandon() {
  expected_.clear();
  arriving_.clear();
  leaving_ = {};
}

nn::State StageLinks::pass_through(
    const MicroBatch& micro_batch,
    const std::function<nn::State(int64_t chunk, nn::State state)>& run) {
  nn::State last;
  for (int64_t chunk = 0; chunk < options_.chunks; ++chunk) {
    const PipelineStep step{Way::Forward, micro_batch.number, chunk * num_stages_ + stage_};
    PipelineStep source;
    if (source_of(step, source)) start_receive(step, micro_batch);
    nn::State state = run(chunk, take(step));
    PipelineStep target;
    if (target_of(step, target))
      send(step, std::move(state));
    else
      last = std::move(state);
  }
  finish();
  return last;
}

at::Tensor StageLinks::share_logits(const nn::State& state, const nn::Batch& batch) {
  const auto documents = batch.cu_seqlens.size(0) - 1;
  const at::Tensor logits = state.has("logits")
                                ? state.at("logits").contiguous()
                                : at::empty({documents, options_.vocabulary},
                                            at::TensorOptions().device(device_).dtype(at::kFloat));
  dist::Group& stages = mesh_->group(dist::Axis::Pipeline);
  stages.wait(stages.broadcast(logits, static_cast<int>(num_stages_) - 1));
  return logits;
}

}  // namespace snug::exec
