// Cast cache: in mixed precision products read 16-bit copies of float32 weights. Without this
// technique each product makes its own, in every forward, recomputation and backward; with it the
// first product's copy serves them all until the backward of the step's last micro-batch. Weights
// change only after that, so the copies, and all results, have the same bits. The copies take 2
// bytes an element, as parameters. They go unit by unit while gradients come, so that a step of one
// micro-batch may have the same peak.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/techniques/behaviour.h"

namespace snug::engine {
namespace {

// A borrowed weight too: its owner may have no backward, or no product.
void free_casts(nn::Unit& unit) {
  for (const nn::Parameter* parameter : unit.uses())
    if (parameter->kept_cast != nullptr) parameter->kept_cast->reset();
}

class CastCache final : public exec::Policy {
 public:
  // Makes the units' matrices keep their copies. Those of experts do not: which of them compute,
  // and so what they would take, no plan knows.
  explicit CastCache(std::vector<nn::Unit*> units) : units_(std::move(units)) {
    for (nn::Unit* unit : units_) {
      std::set<const nn::Parameter*> of_experts;
      for (const std::vector<nn::Parameter*>& expert : unit->experts())
        of_experts.insert(expert.begin(), expert.end());
      for (nn::Parameter* parameter : unit->parameters())
        if (!of_experts.contains(parameter)) parameter->kept_cast = std::make_shared<at::Tensor>();
    }
  }

  // Frees the copies of a unit that has no backward.
  void after_forward(exec::UnitRun& run) override {
    if (!run.training && run.pass->last_micro_batch) free_casts(*run.unit);
  }
  // Runs before an update in the backward, which is a policy before this one.
  void after_backward(exec::UnitRun& run) override {
    if (run.pass->last_micro_batch) free_casts(*run.unit);
  }
  void abandon() override {
    for (nn::Unit* unit : units_) free_casts(*unit);
  }

 private:
  std::vector<nn::Unit*> units_;
};

}  // namespace

Behaviour cast_cache() {
  return {.key = "cast_cache",
          .policy = [](const recipe::Recipe& /*recipe*/,
                       Engine& engine) -> std::shared_ptr<exec::Policy> {
            return std::make_shared<CastCache>(engine.units);
          },
          // The last micro-batch drops the copies: one more, in between, keeps all to its end.
          .simulate =
              [](Simulation& simulation) {
                simulation.micro_batches = std::max<int64_t>(simulation.micro_batches, 3);
              }};
}

}  // namespace snug::engine
