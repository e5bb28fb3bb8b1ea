// SPDX-License-Identifier: Apache-2.0
#include "exec/policies/activation_offload.h"

#include <algorithm>
#include <utility>

#include "memory/guards.h"
#include "memory/placement.h"

namespace snug::exec {
namespace {

bool shares_storage(const at::Tensor& tensor, const nn::State& state) {
  return std::any_of(state.entries().begin(), state.entries().end(), [&](const auto& entry) {
    return entry.second.storage().is_alias_of(tensor.storage());
  });
}

// Every byte of the storage, whatever part of it the tensor views.
int64_t storage_bytes(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.storage().nbytes());
}

}  // namespace

void ActivationOffload::before_forward(UnitRun& run) {
  units_.resize(static_cast<size_t>(run.num_units));
  // The last unit's backward follows at once. In a pass without backward nothing is kept.
  if (run.training && !run.is_last()) recorder_ = std::make_unique<ops::KeptRecorder>(&kept_);
}

void ActivationOffload::after_forward(UnitRun& run) {
  if (!run.training) return;
  if (prefetch_ && run.index > 0) vacate(of(run.index - 1));
  if (recorder_ == nullptr) return;
  recorder_.reset();
  UnitsOwn& own = of(run.index);
  own.ledger_unit = memory::current_tag.unit;
  send_out(own, run.input, run.output);
  if (!prefetch_) vacate(own);
}

void ActivationOffload::send_out(UnitsOwn& own, const nn::State& input, const nn::State& output) {
  const auto add = [&](const at::Tensor& tensor) {
    const memory::Allocation* allocation = memory::find_allocation(tensor);
    if (allocation == nullptr || allocation->category != memory::Category::Activations) return;
    // The same memory under two names leaves once.
    for (const Moved& entry : own.moved)
      if (entry.device.storage().is_alias_of(tensor.storage())) return;
    own.moved.push_back(
        {tensor.detach(), memory::empty_on_host({storage_bytes(tensor)}, at::kByte, tensor.device(),
                                                memory::Category::Activations)});
  };
  // The unit's output is the next one's input, and leaves with it.
  for (const auto& [name, tensor] : input.entries()) add(tensor);
  for (const at::Tensor& tensor : kept_.tensors)
    if (!shares_storage(tensor, output)) add(tensor);
  kept_ = {};
  std::vector<ops::Copy> copies;
  for (const Moved& entry : own.moved)
    copies.push_back({.to = entry.host, .from = entry.device, .whole_storage = true});
  own.on_its_way = copies_.start(std::move(copies));
}

void ActivationOffload::vacate(UnitsOwn& own) {
  copies_.wait(std::exchange(own.on_its_way, nullptr));
  for (const Moved& entry : own.moved) memory::vacate(entry.device);
}

void ActivationOffload::send_back(UnitsOwn& own) {
  if (own.moved.empty() || own.on_its_way != nullptr) return;
  const memory::UnitGuard tag(own.ledger_unit);
  std::vector<ops::Copy> copies;
  for (const Moved& entry : own.moved) {
    memory::refill(entry.device, memory::Category::Activations);
    copies.push_back({.to = entry.device, .from = entry.host, .whole_storage = true});
  }
  own.on_its_way = copies_.start(std::move(copies));
}

void ActivationOffload::before_backward(UnitRun& run) {
  send_back(of(run.index));
  copies_.wait(of(run.index).on_its_way);
  of(run.index) = {};
  if (prefetch_ && run.index > 0) send_back(of(run.index - 1));
}

void ActivationOffload::abandon() {
  copies_.wait_for_all();
  recorder_.reset();
  kept_ = {};
  units_.clear();
}

}  // namespace snug::exec
