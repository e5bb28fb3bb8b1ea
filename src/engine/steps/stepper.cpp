// SPDX-License-Identifier: Apache-2.0
#include "engine/steps/stepper.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/trace.h"
#include "core/kernels/random_key.h"
#include "engine/exec/policies/optimizer_in_backward.h"
#include "engine/parallel/context_parallel.h"

namespace snug::engine {

using kernels::mix64;

namespace {

// For a process that has no sample left while others do: all of them run the same units at the same
// time. Its targets count for nothing.
data::MicroBatch idle_batch(data::BatchSource& samples, int64_t ignore_index) {
  const std::vector<int64_t> any = {0};
  data::MicroBatch batch = samples.make(any);
  std::ranges::fill(batch.targets, static_cast<int32_t>(ignore_index));
  batch.loss_tokens = batch.real_tokens = batch.padded_tokens = batch.raw_tokens = 0;
  return batch;
}

std::vector<double> flat(const nn::RoutedTokens& routed, const models::Routing& routing) {
  std::vector<double> all(static_cast<size_t>(routing.num_blocks * routing.num_experts));
  for (const auto& [block, counts] : routed)
    std::ranges::copy(counts, all.begin() + block * routing.num_experts);
  return all;
}

}  // namespace

Stepper::Stepper(engine::Engine& engine, const recipe::Recipe& recipe, data::BatchSource& samples,
                 PhaseRecorder& phases)
    : engine_(engine),
      recipe_(recipe),
      samples_(samples),
      phases_(phases),
      scaler_(engine.precision.loss_scaling) {
  engine_.executor->on_forward_done([this] { phases_.record("after_fwd"); });
}

StepResult Stepper::step(const SampleIndices& micro_batches, double lr) {
  last_ = micro_batches;
  const std::vector<data::MicroBatch> batches = make_batches(micro_batches);
  StepResult result = count(batches);
  // Not even decay: pictures that cannot be read may leave a step nothing to learn.
  if (result.terms == 0) {
    result.loss = result.grad_norm = std::numeric_limits<double>::quiet_NaN();
    result.updated = false;
    return result;
  }
  engine::Update update;
  is_updating_ = false;
  dropout_key_ = mix64(recipe_.seed ^ mix64(static_cast<uint64_t>(engine_.optimizer->num_steps())));
  try {
    update = engine_.step(
        [&] {
          run(batches, result);
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
  result.grad_norm = without_sign(update.grad_norm);
  result.updated = update.happened;
  return result;
}

std::vector<data::MicroBatch> Stepper::make_batches(const SampleIndices& micro_batches) const {
  const trace::Timed timed(trace::Track::Computation, "data");
  std::vector<data::MicroBatch> batches;
  for (const std::vector<int64_t>& indices : micro_batches) {
    if (!indices.empty())
      batches.push_back(samples_.make(indices));
    else if (!engine_.mesh->is_single())
      batches.push_back(idle_batch(samples_, recipe_.data.ignore_index));
  }
  return batches;
}

StepResult Stepper::count(const std::vector<data::MicroBatch>& batches) const {
  std::vector<double> counts(7);
  for (const data::MicroBatch& batch : batches) {
    counts[0] += batch.real_tokens > 0 ? 1 : 0;
    counts[1] += static_cast<double>(batch.real_tokens);
    counts[2] += static_cast<double>(batch.padded_tokens);
    counts[3] += static_cast<double>(batch.raw_tokens);
    counts[4] += static_cast<double>(batch.loss_tokens);
    const int64_t terms = engine_.objective->terms(counts_of(batch));
    counts[5] += static_cast<double>(terms);
    counts[6] += terms > 0 ? 1 : 0;
  }
  counts = engine_.mesh->data().sum(counts);
  const auto whole = [&](size_t i) { return static_cast<int64_t>(counts[i]); };
  return {.micro_batches = whole(0),
          .iterations = std::ssize(batches),
          .tokens = whole(1),
          .padded_tokens = whole(2),
          .raw_tokens = whole(3),
          .loss_tokens = whole(4),
          .terms = whole(5),
          .micro_batches_with_terms = whole(6)};
}

void Stepper::run(const std::vector<data::MicroBatch>& batches, StepResult& result) {
  result.loss = 0;
  const bool per_micro_batch = recipe_.train.loss_normalization == recipe::LossNormalization::Micro;
  // In the order in which a single process would run all of them.
  const auto dropout_key = dropout_key_ + static_cast<uint64_t>(engine_.mesh->data().rank()) *
                                              static_cast<uint64_t>(batches.size());
  const auto divisor = [&](const data::MicroBatch& batch) {
    const auto own = static_cast<double>(engine_.objective->terms(counts_of(batch)));
    return std::max(1.0, per_micro_batch
                             ? own * static_cast<double>(result.micro_batches_with_terms)
                             : static_cast<double>(result.terms));
  };
  nn::RoutedTokens routed;
  const bool in_turn = engine_.mesh->size(dist::Axis::Pipeline) == 1;
  const auto make = [&](int64_t i) -> exec::MicroBatch {
    if (i > 0) phases_.begin_micro_batch(i, in_turn);
    const trace::Timed timed(trace::Track::Computation, "data");
    const data::MicroBatch& batch = batches[static_cast<size_t>(i)];
    nn::Batch own =
        engine::own_tokens(batch, engine_.device, *engine_.mesh, recipe_.data.ignore_index);
    const auto rows = engine::places_of(own);
    return {.batch = std::move(own),
            .pass = {.compute = engine_.precision.compute,
                     .gradient_scale = scaler_.scale() / divisor(batch),
                     .objective = engine_.objective.get(),
                     .dropout_key = dropout_key + static_cast<uint64_t>(i),
                     .rows = rows,
                     .routed = batch.real_tokens > 0 ? &routed : nullptr,
                     .last_micro_batch = i + 1 == std::ssize(batches)},
            .number = i};
  };
  phases_.begin_micro_batch(0, in_turn);
  const std::vector<double> losses =
      engine_.executor->forward_backward({.count = std::ssize(batches), .make = make});
  for (size_t i = 0; i < losses.size(); ++i) result.loss += losses[i] / divisor(batches[i]);
  // The loss is known to the stage that ends the model, routes to those that have the blocks.
  std::vector<double> sums = flat(routed, engine_.routing);
  sums.push_back(result.loss);
  sums = engine_.mesh->group(dist::Axis::Pipeline).sum(sums);
  sums = engine_.mesh->gradients().sum(sums);
  result.loss = without_sign(sums.back());
  sums.pop_back();
  result.routed = std::move(sums);
}

std::optional<exec::NonFinite> Stepper::watch_again() {
  if (watch_ == nullptr) {
    auto watch = std::make_unique<exec::NumberWatch>();
    watch_ = watch.get();
    engine_.executor->add_policy(std::move(watch));
  }
  if (engine_.in_backward != nullptr) engine_.in_backward->start_measuring();
  phases_.end_step();
  const std::vector<data::MicroBatch> batches = make_batches(last_);
  watch_->start();
  exec::RecordedPasses* recorded = engine_.executor->recorded();
  if (recorded != nullptr) recorded->pause(true);
  StepResult result = count(batches);
  run(batches, result);
  if (recorded != nullptr) recorded->pause(false);
  engine_.drop_gradients();
  return watch_->stop();
}

// In the order in which a single process would have come to them.
std::string Stepper::first_non_finite() {
  std::optional<exec::NonFinite> own;
  try {
    own = watch_again();
  } catch (const OutOfMemory&) {
    engine_.drop_gradients();
    if (!engine_.mesh->is_single()) throw;
    return "there is no memory to look where those numbers come from";
  }
  nlohmann::json mine;
  if (own) {
    const int64_t position = engine_.stage.positions.empty()
                                 ? own->index
                                 : engine_.stage.positions[static_cast<size_t>(own->index)];
    mine = {own->micro_batch, own->in_backward, own->in_backward ? -position : position, own->what};
  }
  std::optional<nlohmann::json> first;
  size_t first_rank = 0;
  const std::vector<std::string> of_ranks = engine_.mesh->world().gather_texts(mine.dump());
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    nlohmann::json found = nlohmann::json::parse(of_ranks[rank]);
    if (found.is_null() || (first && !(found < *first))) continue;
    first = std::move(found);
    first_rank = rank;
  }
  if (!first) return "the same step, run again, has only finite numbers in every unit";
  return fmt::format("the first numbers that are not finite are in {}, in micro-batch {} of {}{}",
                     (*first)[3].get<std::string>(), (*first)[0].get<int64_t>() + 1,
                     std::max<size_t>(1, last_.size()),
                     of_ranks.size() > 1 ? fmt::format(" of rank {}", first_rank) : "");
}

nn::BatchCounts counts_of(const data::MicroBatch& batch) {
  const int64_t documents = std::max<int64_t>(0, std::ssize(batch.cu_seqlens) - 1);
  return {.documents = batch.real_tokens > 0 ? documents : 0, .loss_tokens = batch.loss_tokens};
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

}  // namespace snug::engine
