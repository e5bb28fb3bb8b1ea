// SPDX-License-Identifier: Apache-2.0
#include "exec/policies/weight_streaming.h"

#include <algorithm>

#include "memory/placement.h"
#include "ops/elementwise.h"

namespace snug::exec {

void WeightStreaming::before_forward(UnitRun& run) { fetch(*run.unit); }

// The last unit's backward follows at once, and needs them again.
void WeightStreaming::after_forward(UnitRun& run) {
  if (!(run.training && run.is_last())) release(*run.unit);
}

void WeightStreaming::before_backward(UnitRun& run) { fetch(*run.unit); }
void WeightStreaming::after_backward(UnitRun& run) { release(*run.unit); }

void WeightStreaming::fetch(nn::Unit& unit) {
  fetched_.push_back(&unit);
  for (const nn::Parameter* parameter : unit.uses()) {
    if (!memory::is_vacant(parameter->value)) continue;
    memory::refill(parameter->value, memory::Category::Parameters);
    ops::copy(parameter->value.detach(), parameter->home);
  }
}

void WeightStreaming::release(nn::Unit& unit) {
  for (const nn::Parameter* parameter : unit.uses()) memory::vacate(parameter->value);
  std::erase(fetched_, &unit);
}

void WeightStreaming::abandon() {
  while (!fetched_.empty()) release(*fetched_.back());
}

}  // namespace snug::exec
