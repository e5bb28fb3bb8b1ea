// SPDX-License-Identifier: Apache-2.0
#include "plan/predict.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "core/memory/disk_file.h"
#include "core/ops/attention/library_attention.h"
#include "core/ops/device/device.h"
#include "core/ops/device/host_waits.h"
#include "engine/engine.h"
#include "engine/parallel/context_parallel.h"
#include "engine/strategy.h"
#include "models/family.h"

namespace snug::plan {

TimelineRecorder::TimelineRecorder(memory::Ledger& ledger) : ledger_(ledger) {
  ledger_.observe([this](const memory::Change& change) {
    if (change.bytes != 0 || change.empties)
      events_.all.push_back({.serial = change.serial,
                             .bytes = change.bytes,
                             .stream = change.recorded ? kStreamOfRecorded : 0,
                             .empties = change.empties});
    const bool pass =
        change.phase == memory::Phase::Forward || change.phase == memory::Phase::Backward;
    if (pass && change.bytes > 0) bytes_written_ += change.bytes;
    // Before the first step no unit runs: all allocations belong to one moment.
    const int32_t unit = change.phase == memory::Phase::Setup ? 0 : change.unit;
    const bool same = !step_ranges_.empty() && step_ranges_.back().phase == change.phase &&
                      step_ranges_.back().unit == unit;
    if (!same)
      step_ranges_.push_back({change.phase, unit, change.allocated, *change.live});
    else if (change.allocated >= step_ranges_.back().allocated)
      step_ranges_.back() = {change.phase, unit, change.allocated, *change.live};
  });
}

TimelineRecorder::~TimelineRecorder() { ledger_.observe({}); }

std::vector<Moment> TimelineRecorder::moments() const {
  std::vector<Moment> moments;
  for (const StepRange& s : step_ranges_)
    moments.push_back({s.phase, memory::unit_name(s.unit), s.allocated, s.live});
  return moments;
}

namespace {

using MeshTraffic = decltype(Prediction::traffic);

MeshTraffic traffic_of(const dist::Mesh& mesh) {
  MeshTraffic traffic;
  for (size_t axis = 0; axis < dist::kNumAxes; ++axis)
    traffic[axis] = mesh.group(static_cast<dist::Axis>(axis)).traffic();
  const auto add = [](dist::TrafficByOperation& to, const dist::TrafficByOperation& from) {
    for (size_t i = 0; i < dist::kNumOperations; ++i) {
      to[i].calls += from[i].calls;
      to[i].bytes += from[i].bytes;
    }
  };
  // Whole copies are summed over all that have some of the gradients, which are replicas then.
  dist::TrafficByOperation& replicas = traffic[static_cast<size_t>(dist::Axis::Replicate)];
  add(replicas, mesh.gradients().traffic());
  if (mesh.size(dist::Axis::Expert) > 1) {
    add(replicas, mesh.copies().traffic());
    add(replicas, mesh.same_experts().traffic());
  }
  if (mesh.size(dist::Axis::Context) > 1) {
    add(traffic[static_cast<size_t>(dist::Axis::Shard)], mesh.shards().traffic());
    add(traffic[static_cast<size_t>(dist::Axis::Context)], mesh.context_reversed().traffic());
  }
  if (mesh.size(dist::Axis::Pipeline) > 1)
    add(traffic[static_cast<size_t>(dist::Axis::Pipeline)],
        mesh.between_stages(/*from=*/1, /*to=*/0).traffic());
  return traffic;
}

// a + times * b, number by number.
MeshTraffic sum(MeshTraffic a, const MeshTraffic& b, int64_t times) {
  for (size_t axis = 0; axis < a.size(); ++axis)
    for (size_t i = 0; i < dist::kNumOperations; ++i) {
      a[axis][i].calls += times * b[axis][i].calls;
      a[axis][i].bytes += times * b[axis][i].bytes;
    }
  return a;
}

// Weights that others send are new memory in every forward and backward, but no operator's result.
int64_t bytes_gathered(const MeshTraffic& traffic, const recipe::Recipe& recipe,
                       const dist::MeshShape& mesh) {
  if (engine::stage_on(mesh, recipe) != exec::ShardingStage::Weights) return 0;
  return traffic[static_cast<size_t>(dist::Axis::Shard)]
                [static_cast<size_t>(dist::Operation::AllGather)]
                    .bytes;
}

// How many of a pipeline's `all` micro-batches a sketch runs: from the third round through the
// stages on, each round is like the one before.
int64_t micro_batches_of_sketch(const recipe::Recipe& recipe, const dist::MeshShape& mesh,
                                int64_t all) {
  constexpr int64_t kRounds = 3;
  const int64_t stages = mesh[dist::Axis::Pipeline];
  const bool repeats = engine::pipeline_order(recipe) == exec::PipelineOrder::OneForwardOneBackward;
  if (stages == 1 || !repeats) return all;
  return std::min(all, kRounds * stages + all % stages);
}

}  // namespace

int64_t bytes_on_device(const Prediction& prediction, at::DeviceType kind) {
  return kind == at::kCUDA ? prediction.peak_reserved : prediction.peak_allocated;
}

int64_t micro_batches_that_matter(const recipe::Recipe& recipe, const dist::MeshShape& mesh) {
  // A stage of a pipeline has several under way at once.
  if (mesh[dist::Axis::Pipeline] > 1) return engine::micro_batches_of_step(recipe, mesh);
  return std::min<int64_t>(engine::micro_batches_of_step(recipe, mesh),
                           recipe.optimizer_in_backward || recipe.cast_cache ? 3 : 2);
}

Prediction predict(const models::Model& model, const recipe::Recipe& recipe,
                   const data::MicroBatch& largest, int64_t max_seqlen,
                   const PredictOptions& options) {
  const ops::StandInGuard stand_in(options.device);
  const ops::PlannedFlashAttention flash_attention(options.flash_attention);
  memory::Ledger& ledger = memory::meta_ledger();
  memory::Ledger& host = memory::meta_host_ledger();
  const int64_t before = ledger.allocated();
  ledger.reset_peak();
  const int64_t host_before = host.allocated();
  host.reset_peak();
  const memory::Ledger& disk = memory::meta_disk_ledger();
  const int64_t disk_before = disk.allocated();
  constexpr auto kWeights = static_cast<size_t>(memory::Category::Parameters);
  const int64_t weights_before = disk.by_category()[kWeights];
  Prediction result;
  int64_t gathered = 0;
  std::unique_ptr<TimelineRecorder> recorder;
  if (options.timeline) recorder = std::make_unique<TimelineRecorder>(ledger);
  {
    const auto twin = models::model_like(model);
    engine::Engine engine = engine::make_engine(*twin, recipe, at::kMeta, max_seqlen, options.mesh);
    result.resident = ledger.by_category();
    result.on_disk = disk.allocated() - disk_before;
    result.weights_on_disk = disk.by_category()[kWeights] - weights_before;
    for (nn::Unit* unit : engine.units) {
      for (const nn::Parameter* parameter : unit->parameters()) {
        const auto bytes = static_cast<double>(parameter->value.nbytes());
        result.weight_bytes += bytes;
        if (parameter->trained) result.trained_bytes += bytes;
      }
      for (const auto& expert : unit->experts())
        for (const nn::Parameter* parameter : expert)
          result.expert_bytes += static_cast<double>(parameter->value.nbytes());
    }
    result.tokens = static_cast<int64_t>(largest.input_ids.size());
    result.micro_batches = 0;
    // Rounds of micro-batches but the last are alike: those that are not run have the traffic of
    // the one before it.
    const dist::MeshShape& shape = options.mesh->shape();
    const int64_t matter = micro_batches_that_matter(recipe, shape);
    // With more micro-batches every plan is a sketch.
    constexpr int64_t kMostShown = 1024;
    const bool sketch = options.sketch || matter > kMostShown;
    const int64_t shown = sketch ? micro_batches_of_sketch(recipe, shape, matter) : matter;
    const int64_t round = shape[dist::Axis::Pipeline];
    const int64_t not_shown = engine::micro_batches_of_step(recipe, shape) - shown;
    MeshTraffic in_round{};
    std::vector<MeshTraffic> so_far(static_cast<size_t>(shown));
    std::vector<int64_t> waits_so_far(static_cast<size_t>(shown) + 1);
    int64_t waits_not_shown = 0;
    const auto make = [&](int64_t i) -> exec::MicroBatch {
      const MeshTraffic now = traffic_of(*options.mesh);
      if (i >= round && i + 1 == shown && not_shown > 0)
        in_round = sum(now, so_far[static_cast<size_t>(i - round)], -1);
      so_far[static_cast<size_t>(i)] = now;
      waits_so_far[static_cast<size_t>(i)] = ops::num_host_waits();
      ++result.micro_batches;
      return {
          .batch = engine::own_tokens(largest, at::kMeta, *options.mesh, recipe.data.ignore_index),
          .pass = {.compute = engine.precision.compute,
                   .objective = engine.objective.get(),
                   .dropout_key = 0,
                   .last_micro_batch = i + 1 == shown}};
    };
    // The second of two, and of three, stands for all that are not run.
    bool in_passes = false;
    const auto note = [&](const ops::Work& work) {
      const bool stands = in_passes && (result.micro_batches - 1) % shown == 1;
      options.on_work(work, stands ? static_cast<double>(1 + not_shown) : 1.0);
    };
    std::optional<ops::WorkCounter> counter;
    const auto run_micro_batches = [&] {
      in_passes = true;
      engine.executor->forward_backward({.count = shown, .make = make});
      in_passes = false;
      waits_so_far.back() = ops::num_host_waits();
      if (not_shown > 0) waits_not_shown += not_shown * (waits_so_far[2] - waits_so_far[1]);
    };
    engine.executor->on_forward_done([&] {
      if (result.after_forward == 0) result.after_forward = ledger.allocated() - before;
    });
    const MeshTraffic before_step = traffic_of(*options.mesh);
    optim::LossScaler scaler(engine.precision.loss_scaling);
    // A delayed update holds its gradients through the next step; passes are recorded in the
    // third.
    const int last_step = engine.delayed != nullptr ? 1 : engine.executor->records() ? 2 : 0;
    for (int step = 0; step <= last_step; ++step) {
      if (options.on_work && step == last_step) counter.emplace(note);
      const int64_t waits_before = ops::num_host_waits();
      waits_not_shown = 0;
      if (recorder != nullptr) recorder->begin_step();
      engine.step(run_micro_batches, {.max_norm = recipe.train.max_norm}, scaler);
      engine.drop_gradients();
      if (recorder != nullptr) recorder->end_step();
      result.host_waits = ops::num_host_waits() - waits_before + waits_not_shown;
    }
    // Clipping with the optimizer in backward runs all of them twice.
    const int64_t rounds = result.micro_batches / shown;
    const MeshTraffic of_shown = sum(traffic_of(*options.mesh), before_step, -1);
    result.traffic = sum(of_shown, in_round, rounds * not_shown / round);
    gathered = bytes_gathered(of_shown, recipe, shape);
    counter.reset();
    for (const data::MicroBatch& held_out : options.validation)
      engine.executor->objective(
          engine::own_tokens(held_out, at::kMeta, *options.mesh, recipe.data.ignore_index),
          {.compute = engine.precision.compute, .objective = engine.validated.get()});
  }
  const memory::Snapshot peak = ledger.at_peak();
  const memory::Snapshot host_peak = host.at_peak();
  result.peak_allocated = peak.allocated - before;
  result.by_category = peak.by_category;
  result.host_staging = host_peak.by_category[static_cast<size_t>(memory::Category::Data)];
  result.peak_host = host_peak.allocated - host_before - result.host_staging;
  result.host_by_category = host_peak.by_category;
  result.host_activations =
      host.category_peaks()[static_cast<size_t>(memory::Category::Activations)];
  result.peak_reserved = result.peak_allocated;
  if (recorder != nullptr) {
    result.timeline = recorder->moments();
    result.bytes_written = recorder->bytes_written() - gathered;
    if (options.device == at::kCUDA) {
      const Reserved reserved = replay(recorder->events(), options.reserved_limit, own_segments());
      result.peak_reserved = reserved.peak;
      result.fits_reserved = reserved.fits;
      result.driver_calls = reserved.of_step;
    }
  }
  return result;
}

}  // namespace snug::plan
