// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/policies/cast_cache.h"

#include <memory>
#include <set>
#include <utility>

namespace snug::exec {
namespace {

// A borrowed weight too: its owner may have no backward, or no product.
void free_casts(nn::Unit& unit) {
  for (const nn::Parameter* parameter : unit.uses())
    if (parameter->kept_cast != nullptr) parameter->kept_cast->reset();
}

}  // namespace

CastCache::CastCache(std::vector<nn::Unit*> units) : units_(std::move(units)) {
  for (nn::Unit* unit : units_) {
    std::set<const nn::Parameter*> of_experts;
    for (const std::vector<nn::Parameter*>& expert : unit->experts())
      of_experts.insert(expert.begin(), expert.end());
    for (nn::Parameter* parameter : unit->parameters())
      if (!of_experts.contains(parameter)) parameter->kept_cast = std::make_shared<at::Tensor>();
  }
}

void CastCache::after_forward(UnitRun& run) {
  if (!run.training && run.pass->last_micro_batch) free_casts(*run.unit);
}

void CastCache::after_backward(UnitRun& run) {
  if (run.pass->last_micro_batch) free_casts(*run.unit);
}

void CastCache::abandon() {
  for (nn::Unit* unit : units_) free_casts(*unit);
}

}  // namespace snug::exec
