// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/policies/activation_offload.h"

#include <algorithm>
#include <utility>

#include "core/memory/guards.h"
#include "core/memory/placement.h"

namespace snug::exec {
namespace {

// The bytes of the whole storage, not only of the tensor's view.
int64_t storage_bytes(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.storage().nbytes());
}

}  // namespace

void ActivationOffload::before_forward(UnitRun& run) {
  // The last unit's backward follows at once. A pass without backward, or with recomputation, keeps
  // nothing.
  if (run.training && run.record && !run.is_last())
    recorder_ = std::make_unique<ops::KeptRecorder>(&kept_);
}

void ActivationOffload::after_forward(UnitRun& run) {
  if (!run.training) return;
  if (UnitsOwn* before = find(run, -1); prefetch_ && before != nullptr) vacate(*before);
  if (run.is_last()) return;
  recorder_.reset();
  UnitsOwn& own = units_[run.key()];
  own.ledger_unit = memory::current_tag.unit;
  send_out(own, run.input, run.output);
  // After the last unit of the range another process continues, so there is no later forward here
  // to overlap with.
  if (!prefetch_ || run.index + 1 == run.range.end) vacate(own);
}

ActivationOffload::UnitsOwn* ActivationOffload::find(const UnitRun& run, int64_t distance) {
  const int64_t index = run.index + distance;
  if (index < run.range.begin || index >= run.range.end) return nullptr;
  const auto found = units_.find({run.micro_batch, index});
  return found == units_.end() ? nullptr : &found->second;
}

void ActivationOffload::send_out(UnitsOwn& own, const nn::State& input, const nn::State& output) {
  const auto add = [&](const at::Tensor& tensor) {
    const memory::Allocation* allocation = memory::find_allocation(tensor);
    if (allocation == nullptr || allocation->category != memory::Category::Activations) return;
    // A storage that two tensors share is copied once.
    for (const Moved& entry : own.moved)
      if (entry.device.storage().is_alias_of(tensor.storage())) return;
    own.moved.push_back(
        {tensor.detach(),
         memory::empty_on_host({storage_bytes(tensor)}, at::kByte, tensor.device(),
                               memory::Category::Activations, memory::HostUse::Landing)});
  };
  // The unit's output, passed-through tensors included, is the next unit's input and is moved with
  // it.
  for (const auto& [name, tensor] : input.entries())
    if (!output.shares_storage(tensor)) add(tensor);
  for (const at::Tensor& tensor : kept_.tensors)
    if (!output.shares_storage(tensor)) add(tensor);
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
  if (UnitsOwn* own = find(run, 0)) {
    send_back(*own);
    copies_.wait(own->on_its_way);
    units_.erase(run.key());
  }
  if (UnitsOwn* before = find(run, -1); prefetch_ && before != nullptr) send_back(*before);
}

void ActivationOffload::abandon() {
  copies_.wait_for_all();
  recorder_.reset();
  kept_ = {};
  units_.clear();
}

}  // namespace snug::exec
