// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/policies/weight_streaming.h"

#include "core/memory/guards.h"
#include "core/memory/placement.h"
#include "engine/exec/policies/expert_streaming.h"

namespace snug::exec {

WeightStreaming::WeightStreaming(std::vector<nn::Unit*> units, ops::CopyStream& copies,
                                 bool prefetch, bool streams_experts)
    : units_(std::move(units)), copies_(copies), prefetch_(prefetch) {
  if (!streams_experts) return;
  for (nn::Unit* unit : units_)
    for (const std::vector<nn::Parameter*>& expert : streamed_experts(*unit))
      others_.insert(expert.begin(), expert.end());
}

std::vector<nn::Parameter*> WeightStreaming::used(int64_t index) const {
  std::vector<nn::Parameter*> used = units_[static_cast<size_t>(index)]->uses();
  std::erase_if(used, [&](const nn::Parameter* parameter) { return others_.contains(parameter); });
  return used;
}

void WeightStreaming::before_forward(UnitRun& run) {
  arrive(run.index, run.index + 1 < run.range.end ? run.index + 1 : -1);
}

// The last unit's backward follows at once and needs its weights again.
void WeightStreaming::after_forward(UnitRun& run) {
  if (!(run.training && run.is_last())) release(run.index);
}

void WeightStreaming::before_backward(UnitRun& run) {
  arrive(run.index, run.index > run.first_trained ? run.index - 1 : -1);
}

void WeightStreaming::after_backward(UnitRun& run) { release(run.index); }

void WeightStreaming::send(int64_t index) {
  if (sent_.contains(index)) return;
  const memory::UnitGuard tag(memory::unit_id(units_[static_cast<size_t>(index)]->name()));
  ops::CopyStream::Ticket& ticket = sent_[index];
  std::vector<ops::Copy> copies;
  for (const nn::Parameter* parameter : used(index)) {
    if (!memory::is_vacant(parameter->value)) continue;
    memory::refill(parameter->value, memory::Category::Parameters);
    copies.push_back({parameter->value.detach(), parameter->home});
  }
  ticket = copies_.start(std::move(copies));
}

void WeightStreaming::arrive(int64_t index, int64_t next) {
  send(index);
  copies_.wait(sent_.at(index));
  if (prefetch_ && next >= 0) send(next);
}

// A weight that two units use stays while one of them needs it.
void WeightStreaming::release(int64_t index) {
  sent_.erase(index);
  std::set<const nn::Parameter*> needed;
  for (const auto& [other, ticket] : sent_) {
    const std::vector<nn::Parameter*> uses = used(other);
    needed.insert(uses.begin(), uses.end());
  }
  for (const nn::Parameter* parameter : used(index))
    if (!needed.contains(parameter)) memory::vacate(parameter->value);
}

void WeightStreaming::abandon() {
  copies_.wait_for_all();
  while (!sent_.empty()) release(sent_.begin()->first);
}

}  // namespace snug::exec
