// SPDX-License-Identifier: Apache-2.0
#include "train/stepper.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/cpu/random_key.h"
#include "setup/batch.h"

namespace snug::train {

using kernels::cpu::mix64;

Stepper::Stepper(setup::Engine& engine, const config::Recipe& recipe,
                 const data::SampleStore& samples, PhaseRecorder& phases)
    : engine_(engine),
      recipe_(recipe),
      samples_(samples),
      phases_(phases),
      scaler_(engine.precision.loss_scaling) {
  engine_.executor->on_forward_done([this] { phases_.record("after_fwd"); });
}

StepResult Stepper::step(const SampleIndices& micro_batches, double lr) {
  const std::vector<data::MicroBatch> batches = make_batches(micro_batches);
  StepResult result;
  setup::Update update;
  is_updating_ = false;
  dropout_key_ = mix64(recipe_.seed ^ mix64(static_cast<uint64_t>(engine_.optimizer->num_steps())));
  try {
    update = engine_.step(
        [&] {
          result = run(batches);
          is_updating_ = true;
          phases_.record("after_bwd");
        },
        {.lr = lr, .max_norm = recipe_.train.max_norm}, scaler_);
  } catch (...) {
    engine_.drop_gradients();
    throw;
  }
  engine_.drop_gradients();
  phases_.record("after_opt_step");
  result.grad_norm = update.grad_norm;
  result.updated = update.happened;
  return result;
}

std::vector<data::MicroBatch> Stepper::make_batches(const SampleIndices& micro_batches) const {
  std::vector<data::MicroBatch> batches;
  for (const std::vector<int64_t>& indices : micro_batches) {
    if (indices.empty()) continue;
    batches.push_back(
        data::make_micro_batch(samples_, indices,
                               {.packing = recipe_.data.packing,
                                .ignore_index = static_cast<int32_t>(recipe_.data.ignore_index)}));
  }
  return batches;
}

StepResult Stepper::run(const std::vector<data::MicroBatch>& batches) {
  StepResult result;
  for (const data::MicroBatch& batch : batches) result.loss_tokens += batch.loss_tokens;
  const bool per_micro_batch = recipe_.train.loss_normalization == "micro";
  const auto count = static_cast<double>(batches.size());
  phases_.record("before_fwd");
  for (const data::MicroBatch& batch : batches) {
    const auto divisor =
        std::max(1.0, per_micro_batch ? static_cast<double>(batch.loss_tokens) * count
                                      : static_cast<double>(result.loss_tokens));
    const nn::Pass pass{.compute = engine_.precision.compute,
                        .gradient_scale = scaler_.scale() / divisor,
                        .ignore_index = recipe_.data.ignore_index,
                        .label_smoothing = recipe_.train.label_smoothing,
                        .z_loss = recipe_.train.z_loss,
                        .dropout_key = dropout_key_ + static_cast<uint64_t>(result.micro_batches),
                        .last_micro_batch = &batch == &batches.back()};
    result.loss +=
        engine_.executor->forward_backward(setup::to_device(batch, engine_.device), pass) / divisor;
    ++result.micro_batches;
    result.tokens += batch.real_tokens;
    result.padded_tokens += batch.padded_tokens;
    result.raw_tokens += batch.raw_tokens;
  }
  return result;
}

SampleIndices split_micro_batches(const SampleIndices& micro_batches) {
  SampleIndices result;
  for (const std::vector<int64_t>& indices : micro_batches) {
    const auto middle = indices.begin() + static_cast<std::ptrdiff_t>((indices.size() + 1) / 2);
    result.emplace_back(indices.begin(), middle);
    if (middle != indices.end()) result.emplace_back(middle, indices.end());
  }
  return result;
}

}  // namespace snug::train
