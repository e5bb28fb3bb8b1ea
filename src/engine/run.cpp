// SPDX-License-Identifier: Apache-2.0
#include "engine/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/trace.h"
#include "core/kernels/random_key.h"
#include "core/memory/guards.h"
#include "engine/batch.h"
#include "engine/parallel/context_parallel.h"

namespace snug::engine {

using kernels::mix64;

namespace {

// For a process that has no sample left while others do: all of them run the same units at the same
// time. It counts for nothing: its gradient has scale 0, its sum is not added.
std::shared_ptr<const data::MicroBatch> idle_batch(data::BatchSource& samples) {
  const std::vector<int64_t> any = {0};
  auto batch = std::make_shared<data::MicroBatch>(*samples.make(any));
  batch->loss_tokens = batch->real_tokens = batch->padded_tokens = batch->raw_tokens = 0;
  return batch;
}

void check_is_as_declared(const data::MicroBatch& batch, const nn::BatchSpec& spec) {
  const int64_t documents = std::ssize(batch.cu_seqlens) - 1;
  SNUG_CHECK(
      documents % spec.documents_per_sample == 0 && batch.columns.size() == spec.columns.size(),
      "{} documents and {} columns, but the objective wants {} a sample and {}", documents,
      batch.columns.size(), spec.documents_per_sample, spec.columns.size());
}

bool is_idle(const data::MicroBatch& batch) { return batch.real_tokens == 0; }

// The formula of torch.nn.utils.clip_grad_norm_.
double clip_factor(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

std::vector<double> flat(const nn::RoutedTokens& routed, const models::Routing& routing) {
  std::vector<double> all(static_cast<size_t>(routing.num_blocks * routing.num_experts));
  for (const auto& [block, counts] : routed)
    std::ranges::copy(counts, all.begin() + block * routing.num_experts);
  return all;
}

}  // namespace

Run::Run(models::Model& model, const recipe::Recipe& recipe, data::BatchSource& samples,
         const RunOptions& options)
    : recipe_(recipe),
      samples_(samples),
      engine_(make_engine(model, recipe, options.device, options.longest, options.mesh,
                          options.extensions.optimizer)),
      scaler_(engine_->precision.loss_scaling) {
  const auto& [objective, policies, optimizer] = options.extensions;
  if (objective != nullptr) {
    nn::check(objective->batch());
    engine_->objective = engine_->validated = objective;
  }
  for (const auto& make : policies) {
    std::shared_ptr<exec::Policy> policy = make ? make() : nullptr;
    if (policy == nullptr)
      throw UserError(
          "policies: a function in the list is null or returns null; let it return "
          "std::make_shared of your policy");
    engine_->executor->add_policy(std::move(policy));
  }
  engine_->executor->on_forward_done([this] { observer_->after_forward(); });
}

StepResult Run::step(const SampleIndices& micro_batches, double lr) {
  last_ = micro_batches;
  is_updating_ = false;
  const Batches batches = make_batches(micro_batches);
  StepResult result = count(batches);
  // Not even decay: pictures that cannot be read may leave a step nothing to learn.
  if (result.terms == 0) {
    result.loss = result.grad_norm = std::numeric_limits<double>::quiet_NaN();
    result.updated = false;
    return result;
  }
  dropout_key_ =
      mix64(recipe_.seed ^ mix64(static_cast<uint64_t>(engine_->optimizer->num_steps())));
  try {
    estimate_ = estimate(micro_batches);
    take_step(batches, lr, result);
  } catch (...) {
    engine_->drop_gradients();
    throw;
  }
  engine_->drop_gradients();
  observer_->after_update();
  return result;
}

double Run::estimate(const SampleIndices& micro_batches) {
  if (engine_->objective->estimate() == nullptr) return 0;
  SampleIndices own = micro_batches;
  // One that others have and this process has not is run all the same, for their sake.
  if (engine_->mesh->is_single()) std::erase(own, std::vector<int64_t>());
  observer_->begin_estimate();
  const double found = engine::estimate(
      *engine_->executor, samples_, own,
      {.compute = engine_->precision.compute, .objective = engine_->objective.get()},
      engine_->mesh.get());
  observer_->end_estimate();
  return found;
}

// Sweep, norm, update: weights are published by the updater, as they are updated or later.
void Run::take_step(const Batches& batches, double lr, StepResult& result) {
  using exec::Sweep;
  exec::Updater& updater = *engine_->updater;
  const double max_norm = recipe_.train.max_norm.value_or(0);
  optim::StepOptions options{.lr = lr};
  if (updater.updates_in_sweep() && max_norm > 0) {
    sweep(Sweep::Measure, options, batches, result);
    options.gradient_scale = clip_factor(gradient_norm(), max_norm);
  }
  sweep(Sweep::Update, options, batches, result);
  // No loss scaling: a step could not be skipped any more.
  if (updater.updates_in_sweep()) {
    result.grad_norm = without_sign(gradient_norm());
    return;
  }
  const memory::PhaseGuard phase(memory::Phase::Step);
  const double scaled_norm = gradient_norm();
  const double unscale = 1.0 / scaler_.scale();
  result.grad_norm = without_sign(scaled_norm * unscale);
  result.updated = scaler_.update(scaled_norm);
  updater.finish();  // of the step before
  if (!result.updated) return;
  options.gradient_scale = unscale * clip_factor(result.grad_norm, max_norm);
  updater.update(options);
}

void Run::sweep(exec::Sweep sweep, const optim::StepOptions& options, const Batches& batches,
                StepResult& result) {
  is_updating_ = sweep == exec::Sweep::Update && engine_->updater->updates_in_sweep();
  engine_->updater->begin_sweep(sweep, options);
  forward_backward(batches, result);
  is_updating_ = sweep == exec::Sweep::Update;
  observer_->after_sweep();
  engine_->updater->end_sweep();
}

double Run::gradient_norm() const {
  const trace::Timed timed(trace::Track::Computation, "gradient norm");
  return engine_->global_norm(engine_->updater->sum_of_squares());
}

ValidationResult Run::evaluate(data::BatchSource& samples, int64_t num_samples, int64_t max_batches,
                               int64_t first_sample) {
  return validate(*engine_->executor, samples, num_samples,
                  {.micro_batch_size = recipe_.train.micro_batch_size,
                   .first_sample = first_sample,
                   .max_batches = max_batches,
                   .compute = engine_->precision.compute,
                   .objective = engine_->validated.get()},
                  engine_->mesh.get());
}

std::vector<double> Run::log_probs(data::BatchSource& samples, int64_t num_samples,
                                   const std::function<void(int64_t)>& after_each) {
  return log_probs_of_documents(*engine_->executor, samples, num_samples,
                                {.micro_batch_size = recipe_.train.micro_batch_size,
                                 .compute = engine_->precision.compute,
                                 .after_each = after_each},
                                engine_->mesh.get());
}

Run::Batches Run::make_batches(const SampleIndices& micro_batches) const {
  const trace::Timed timed(trace::Track::Computation, "data");
  Batches batches;
  for (const std::vector<int64_t>& indices : micro_batches) {
    if (!indices.empty())
      batches.push_back(samples_.make(indices));
    else if (!engine_->mesh->is_single())
      batches.push_back(idle_batch(samples_));
  }
  for (const auto& batch : batches) check_is_as_declared(*batch, engine_->objective->batch());
  return batches;
}

StepResult Run::count(const Batches& batches) const {
  std::vector<double> counts(7);
  for (const auto& shared : batches) {
    const data::MicroBatch& batch = *shared;
    counts[0] += batch.real_tokens > 0 ? 1 : 0;
    counts[1] += static_cast<double>(batch.real_tokens);
    counts[2] += static_cast<double>(batch.padded_tokens);
    counts[3] += static_cast<double>(batch.raw_tokens);
    counts[4] += static_cast<double>(batch.loss_tokens);
    const int64_t terms = engine_->objective->terms(counts_of(batch));
    counts[5] += static_cast<double>(terms);
    counts[6] += terms > 0 ? 1 : 0;
  }
  counts = engine_->mesh->data().sum(counts);
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

void Run::forward_backward(const Batches& batches, StepResult& result) {
  const bool per_micro_batch = recipe_.train.loss_normalization == recipe::LossNormalization::Micro;
  // In the order in which a single process would run all of them.
  const auto dropout_key = dropout_key_ + static_cast<uint64_t>(engine_->mesh->data().rank()) *
                                              static_cast<uint64_t>(batches.size());
  const auto divisor = [&](const data::MicroBatch& batch) {
    const auto own = static_cast<double>(engine_->objective->terms(counts_of(batch)));
    return std::max(1.0, per_micro_batch
                             ? own * static_cast<double>(result.micro_batches_with_terms)
                             : static_cast<double>(result.terms));
  };
  nn::RoutedTokens routed;
  const auto make = [&](int64_t i) -> exec::MicroBatch {
    observer_->begin_micro_batch(i);
    const trace::Timed timed(trace::Track::Computation, "data");
    const data::MicroBatch& batch = *batches[static_cast<size_t>(i)];
    nn::Batch own =
        engine::own_tokens(batch, engine_->device, *engine_->mesh,
                           engine::noise_of(batch, recipe_.train.neftune_noise_alpha.value_or(0)));
    if (engine_->objective->estimate() != nullptr)
      engine::set_estimate(own, estimate_, engine_->device);
    const auto rows = engine::places_of(own);
    return {.batch = std::move(own),
            .pass = {.compute = engine_->precision.compute,
                     .gradient_scale = is_idle(batch) ? 0 : scaler_.scale() / divisor(batch),
                     .objective = engine_->objective.get(),
                     .dropout_key = dropout_key + static_cast<uint64_t>(i),
                     .rows = rows,
                     .routed = batch.real_tokens > 0 ? &routed : nullptr,
                     .last_micro_batch = i + 1 == std::ssize(batches)},
            .number = i};
  };
  const std::vector<exec::Sums> of_batches =
      engine_->executor->forward_backward({.count = std::ssize(batches), .make = make});
  const auto copies = static_cast<double>(ranks_with_sum(*engine_->objective, *engine_->mesh));
  // The loss and the figures behind it are known to the stage that ends the model, routes to those
  // that have the blocks.
  std::vector<double> sums(1 + engine_->objective->figures().size());
  for (size_t i = 0; i < of_batches.size(); ++i)
    for (size_t k = 0; k < of_batches[i].size() && !is_idle(*batches[i]); ++k)
      sums.at(k) += of_batches[i][k] / divisor(*batches[i]) / copies;
  const auto num_sums = static_cast<std::ptrdiff_t>(sums.size());
  const std::vector<double> routes = flat(routed, engine_->routing);
  sums.insert(sums.end(), routes.begin(), routes.end());
  sums = engine_->mesh->group(dist::Axis::Pipeline).sum(sums);
  sums = engine_->mesh->gradients().sum(sums);
  result.loss = without_sign(sums.front());
  result.figures = engine_->objective->figures_of({sums.begin() + 1, sums.begin() + num_sums});
  result.routed.assign(sums.begin() + num_sums, sums.end());
}

std::optional<exec::NonFinite> Run::watch_again() {
  if (watch_ == nullptr) {
    auto watch = std::make_unique<exec::NumberWatch>();
    watch_ = watch.get();
    engine_->executor->add_policy(std::move(watch));
  }
  engine_->updater->begin_sweep(exec::Sweep::Measure, {});
  observer_->repeat();
  const Batches batches = make_batches(last_);
  watch_->start();
  exec::RecordedPasses* recorded = engine_->executor->recorded();
  if (recorded != nullptr) recorded->pause(true);
  StepResult result = count(batches);
  forward_backward(batches, result);
  if (recorded != nullptr) recorded->pause(false);
  engine_->drop_gradients();
  return watch_->stop();
}

// In the order in which a single process would have come to them.
std::string Run::first_non_finite() {
  std::optional<exec::NonFinite> own;
  try {
    own = watch_again();
  } catch (const OutOfMemory&) {
    engine_->drop_gradients();
    if (!engine_->mesh->is_single()) throw;
    return "there is no memory to look where those numbers come from";
  }
  nlohmann::json mine;
  if (own) {
    const int64_t position = engine_->stage.positions.empty()
                                 ? own->index
                                 : engine_->stage.positions[static_cast<size_t>(own->index)];
    mine = {own->micro_batch, own->in_backward, own->in_backward ? -position : position, own->what};
  }
  std::optional<nlohmann::json> first;
  size_t first_rank = 0;
  const std::vector<std::string> of_ranks = engine_->mesh->world().gather_texts(mine.dump());
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
