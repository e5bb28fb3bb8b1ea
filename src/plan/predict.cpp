// SPDX-License-Identifier: Apache-2.0
#include "plan/predict.h"

#include "memory/guards.h"
#include "models/family.h"
#include "ops/device.h"
#include "setup/batch.h"
#include "setup/engine.h"

namespace snug::plan {

Prediction predict(const models::Model& model, const config::Recipe& recipe,
                   const data::MicroBatch& largest, int64_t max_seqlen, at::DeviceType device) {
  const ops::StandInGuard stand_in(device);
  memory::Ledger& ledger = memory::meta_ledger();
  const int64_t before = ledger.allocated();
  ledger.reset_peak();
  {
    const auto twin = models::model_like(model);
    const setup::Engine engine = setup::make_engine(*twin, recipe, at::kMeta, max_seqlen);
    const nn::Batch batch = setup::to_device(largest, at::kMeta);
    const nn::Pass pass{.compute = engine.precision.compute};
    // Twice where gradients are accumulated: the second micro-batch meets the first one's
    // gradients.
    const bool accumulates = recipe.train.global_batch_size > recipe.train.micro_batch_size;
    for (int i = 0; i < (accumulates ? 2 : 1); ++i) engine.executor->forward_backward(batch, pass);
    const memory::PhaseGuard phase(memory::Phase::Step);
    engine.optimizer->step({});
    engine.drop_gradients();
  }
  const memory::Snapshot peak = ledger.at_peak();
  return {peak.allocated - before, peak.by_category};
}

}  // namespace snug::plan
