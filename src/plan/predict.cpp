// SPDX-License-Identifier: Apache-2.0
#include "plan/predict.h"

#include <algorithm>
#include <memory>

#include "memory/disk_file.h"
#include "models/family.h"
#include "ops/device.h"
#include "plan/caching_allocator.h"
#include "setup/batch.h"
#include "setup/engine.h"

namespace snug::plan {

void replay_reserved(const std::vector<TimelineRecorder::Event>& events, int64_t limit,
                     Prediction& result) {
  const auto run = [&](CachingAllocator& allocator) {
    for (const TimelineRecorder::Event& event : events) {
      if (event.bytes < 0)
        allocator.free(event.serial);
      else if (!allocator.allocate(event.serial, event.bytes))
        return false;
    }
    return true;
  };
  CachingAllocator unlimited;
  run(unlimited);
  result.peak_reserved = unlimited.peak_reserved();
  CachingAllocator limited(limit);
  if (limit == 0 || result.peak_reserved <= limit) return;
  result.fits_reserved = run(limited);
  // Tight, but it gives cached segments back and gets through.
  if (result.fits_reserved) result.peak_reserved = limited.peak_reserved();
}

int64_t micro_batches_that_matter(const config::Recipe& recipe) {
  const config::TrainOptions& t = recipe.train;
  const int64_t all = (t.global_batch_size + t.micro_batch_size - 1) / t.micro_batch_size;
  return std::min<int64_t>(all, recipe.optimizer_in_backward ? 3 : 2);
}

Prediction predict(const models::Model& model, const config::Recipe& recipe,
                   const data::MicroBatch& largest, int64_t max_seqlen,
                   const PredictOptions& options) {
  const ops::StandInGuard stand_in(options.device);
  memory::Ledger& ledger = memory::meta_ledger();
  memory::Ledger& host = memory::meta_host_ledger();
  const int64_t before = ledger.allocated();
  ledger.reset_peak();
  const int64_t host_before = host.allocated();
  host.reset_peak();
  const int64_t disk_before = memory::meta_disk_ledger().allocated();
  Prediction result;
  std::unique_ptr<TimelineRecorder> recorder;
  if (options.timeline) recorder = std::make_unique<TimelineRecorder>(ledger);
  {
    const auto twin = models::model_like(model);
    setup::Engine engine = setup::make_engine(*twin, recipe, at::kMeta, max_seqlen);
    result.resident = ledger.by_category();
    result.on_disk = memory::meta_disk_ledger().allocated() - disk_before;
    for (const nn::Parameter* parameter : twin->parameters()) {
      const auto bytes = static_cast<double>(parameter->value.nbytes());
      result.weight_bytes += bytes;
      if (parameter->trained) result.trained_bytes += bytes;
    }
    result.tokens = static_cast<int64_t>(largest.input_ids.size());
    const nn::Batch batch = setup::to_device(largest, at::kMeta);
    nn::Pass pass{.compute = engine.precision.compute, .dropout_key = 0};
    result.micro_batches = 0;
    const auto run_micro_batch = [&](bool last) {
      pass.last_micro_batch = last;
      engine.executor->forward_backward(batch, pass);
      ++result.micro_batches;
    };
    const auto run_micro_batches = [&] {
      for (int64_t left = micro_batches_that_matter(recipe); left > 0; --left)
        run_micro_batch(left == 1);
    };
    optim::LossScaler scaler(engine.precision.loss_scaling);
    // A delayed update holds its gradients through the next step.
    for (int step = 0; step < (engine.delayed != nullptr ? 2 : 1); ++step) {
      engine.step(run_micro_batches, {.max_norm = recipe.train.max_norm}, scaler);
      engine.drop_gradients();
    }
  }
  const memory::Snapshot peak = ledger.at_peak();
  const memory::Snapshot host_peak = host.at_peak();
  result.peak_allocated = peak.allocated - before;
  result.by_category = peak.by_category;
  result.peak_host = host_peak.allocated - host_before;
  result.host_by_category = host_peak.by_category;
  result.peak_reserved = result.peak_allocated;
  if (recorder != nullptr) {
    result.timeline = recorder->moments();
    result.bytes_written = recorder->bytes_written();
    if (options.device == at::kCUDA)
      replay_reserved(recorder->events(), options.reserved_limit, result);
  }
  return result;
}

}  // namespace snug::plan
