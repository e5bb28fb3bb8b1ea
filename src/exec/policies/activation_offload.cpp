// SPDX-License-Identifier: Apache-2.0
#include "exec/policies/activation_offload.h"

#include <algorithm>

#include "memory/placement.h"
#include "ops/elementwise.h"

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
  moved_.resize(static_cast<size_t>(run.num_units));
  // The last unit's backward follows at once. In a pass without backward nothing is kept.
  if (run.training && !run.is_last()) recorder_ = std::make_unique<ops::KeptRecorder>(&kept_);
}

void ActivationOffload::after_forward(UnitRun& run) {
  if (recorder_ == nullptr) return;
  recorder_.reset();
  std::vector<Moved>& moved = moved_[static_cast<size_t>(run.index)];
  // The unit's output is the next one's input, and leaves with it.
  for (const auto& [name, tensor] : run.input.entries()) move_out(tensor, moved);
  for (const at::Tensor& tensor : kept_.tensors)
    if (!shares_storage(tensor, run.output)) move_out(tensor, moved);
  kept_ = {};
}

void ActivationOffload::move_out(const at::Tensor& tensor, std::vector<Moved>& moved) const {
  const memory::Allocation* allocation = memory::find_allocation(tensor);
  if (allocation == nullptr || allocation->category != memory::Category::Activations) return;
  const int64_t bytes = storage_bytes(tensor);
  const at::Tensor host =
      memory::empty_on_host({bytes}, at::kByte, tensor.device(), memory::Category::Activations);
  ops::copy_storage(host, tensor);
  const at::Tensor alias = tensor.detach();
  memory::vacate(alias);
  moved.push_back({alias, host});
}

void ActivationOffload::before_backward(UnitRun& run) {
  std::vector<Moved> moved = std::exchange(moved_[static_cast<size_t>(run.index)], {});
  for (Moved& entry : moved) {
    memory::refill(entry.device, memory::Category::Activations);
    ops::copy_storage(entry.device, entry.host);
    entry = {};
  }
}

void ActivationOffload::abandon() {
  recorder_.reset();
  kept_ = {};
  moved_.clear();
}

}  // namespace snug::exec
