// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/policies/weight_streaming.h"

#include "core/memory/guards.h"
#include "core/memory/placement.h"
#include "engine/exec/policies/expert_streaming.h"

namespace snug::exec {
namespace {

std::unordered_set<const nn::Parameter*> all_experts(const std::vector<nn::Unit*>& units) {
  std::unordered_set<const nn::Parameter*> all;
  for (nn::Unit* unit : units)
    for (const std::vector<nn::Parameter*>& expert : streamed_experts(*unit))
      all.insert(expert.begin(), expert.end());
  return all;
}

}  // namespace

WeightStreaming::WeightStreaming(std::vector<nn::Unit*> units, ops::CopyStream& copies,
                                 bool prefetch, bool streams_experts)
    : units_(std::move(units)),
      others_(streams_experts ? all_experts(units_) : std::unordered_set<const nn::Parameter*>()),
      copies_(copies),
      from_home_(copies, all_used()),
      prefetch_(prefetch) {}

std::vector<std::vector<nn::Parameter*>> WeightStreaming::all_used() const {
  std::vector<std::vector<nn::Parameter*>> all;
  for (int64_t index = 0; index < std::ssize(units_); ++index) all.push_back(used(index));
  return all;
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
  std::vector<const nn::Parameter*> missing;
  for (const nn::Parameter* parameter : used(index)) {
    if (!memory::is_vacant(parameter->value)) continue;
    memory::refill(parameter->value, memory::Category::Parameters);
    missing.push_back(parameter);
  }
  ticket = from_home_.start(missing);
}

void WeightStreaming::arrive(int64_t index, int64_t next) {
  send(index);
  copies_.wait(sent_.at(index));
  if (next < 0) return;
  if (prefetch_) send(next);
  const int64_t soon = prefetch_ ? next + (next - index) : next;
  if (soon >= 0 && soon < std::ssize(units_)) read_ahead(used(soon));
}

// A weight that two units use stays while one of them needs it.
void WeightStreaming::release(int64_t index) {
  sent_.erase(index);
  std::unordered_set<const nn::Parameter*> needed;
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
