// SPDX-License-Identifier: Apache-2.0
#include "plan/predict.h"

#include "models/family.h"
#include "ops/device.h"
#include "setup/batch.h"
#include "setup/engine.h"

namespace snug::plan {

Prediction predict(const models::Model& model, const config::Recipe& recipe,
                   const data::MicroBatch& largest, int64_t max_seqlen, at::DeviceType device) {
  const ops::StandInGuard stand_in(device);
  memory::Ledger& ledger = memory::meta_ledger();
  memory::Ledger& host = memory::meta_host_ledger();
  const int64_t before = ledger.allocated();
  ledger.reset_peak();
  const int64_t host_before = host.allocated();
  host.reset_peak();
  {
    const auto twin = models::model_like(model);
    setup::Engine engine = setup::make_engine(*twin, recipe, at::kMeta, max_seqlen);
    const nn::Batch batch = setup::to_device(largest, at::kMeta);
    nn::Pass pass{.compute = engine.precision.compute};
    // Twice where gradients are accumulated: the second micro-batch meets the first one's
    // gradients.
    const bool accumulates = recipe.train.global_batch_size > recipe.train.micro_batch_size;
    const auto run_micro_batches = [&] {
      pass.last_micro_batch = !accumulates;
      engine.executor->forward_backward(batch, pass);
      if (pass.last_micro_batch) return;
      pass.last_micro_batch = true;
      engine.executor->forward_backward(batch, pass);
    };
    optim::LossScaler scaler(engine.precision.loss_scaling);
    engine.step(run_micro_batches, {.max_norm = recipe.train.max_norm}, scaler);
    engine.drop_gradients();
  }
  const memory::Snapshot peak = ledger.at_peak();
  const memory::Snapshot host_peak = host.at_peak();
  return {.peak_allocated = peak.allocated - before,
          .by_category = peak.by_category,
          .peak_host = host_peak.allocated - host_before,
          .host_by_category = host_peak.by_category};
}

}  // namespace snug::plan
