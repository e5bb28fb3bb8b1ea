// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/policies/optimizer_offload.h"

#include <algorithm>
#include <utility>

#include "core/memory/placement.h"
#include "core/ops/device/device.h"
#include "core/ops/elementwise.h"

namespace snug::exec {

void OptimizerOffload::after_backward(UnitRun& run) {
  const auto unit = static_cast<size_t>(run.index);
  send_units(unit, std::min(unit + 2, updated_.size()));
}

void OptimizerOffload::send_units(size_t first, size_t last) {
  settle();
  std::vector<ops::Copy> copies;
  for (size_t i = first; i < last; ++i)
    for (nn::Parameter* parameter : updated_[i]) send_home(*parameter, copies);
  on_their_way_ = copies_.start(std::move(copies));
  if (overlap_) return;
  copies_.wait_on_host(on_their_way_);
  settle();
}

void OptimizerOffload::send_home(nn::Parameter& parameter, std::vector<ops::Copy>& copies) {
  at::Tensor& gradient = parameter.value.mutable_grad();
  if (!gradient.defined()) return;
  at::Tensor& home = parameter.home.mutable_grad();
  // On a cpu the gradient can be added without a copy.
  at::Tensor landing = gradient;
  if (!home.defined() || ops::kernel_device(gradient) == at::kCUDA) {
    landing = memory::empty_on_host(gradient.sizes(), gradient.scalar_type(), gradient.device(),
                                    memory::Category::Gradients, memory::HostUse::Landing);
    copies.push_back({.to = landing, .from = gradient});
  }
  leaving_.push_back({&parameter, std::exchange(gradient, {}), std::move(landing)});
}

// The host waits only for gradients that it must add; for the others only the device's memory waits
// to be freed.
void OptimizerOffload::settle() {
  const bool adds = std::any_of(leaving_.begin(), leaving_.end(), [](const Leaving& entry) {
    return entry.parameter->home.grad().defined();
  });
  const ops::CopyStream::Ticket ticket = std::exchange(on_their_way_, nullptr);
  adds ? copies_.wait_on_host(ticket) : copies_.wait(ticket);
  for (Leaving& entry : leaving_) {
    at::Tensor& home = entry.parameter->home.mutable_grad();
    if (home.defined())
      ops::accumulate(home, entry.landing);
    else
      home = std::move(entry.landing);
    entry = {};
  }
  leaving_.clear();
}

void OptimizerOffload::after_micro_batch() {
  send_units(0, updated_.size());
  settle();
  copies_.wait_for_all_on_host();
}

void OptimizerOffload::abandon() {
  copies_.wait_for_all();
  leaving_.clear();
  on_their_way_ = nullptr;
}

}  // namespace snug::exec
