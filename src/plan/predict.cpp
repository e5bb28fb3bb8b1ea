// SPDX-License-Identifier: Apache-2.0
#include "plan/predict.h"
#include "engine/steps/objective.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "core/memory/budget_guard.h"
#include "core/memory/disk_file.h"
#include "core/ops/attention/library_attention.h"
#include "core/ops/device/device.h"
#include "core/ops/device/host_waits.h"
#include "engine/run.h"
#include "engine/strategy.h"
#include "engine/techniques/behaviour.h"
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

// What one of `count` passes that are alike has of their traffic.
MeshTraffic share(MeshTraffic traffic, int64_t count) {
  for (dist::TrafficByOperation& axis : traffic)
    for (auto& operation : axis) {
      operation.calls /= count;
      operation.bytes /= count;
    }
  return traffic;
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

// The micro-batch that stands for all of a step.
class OneForAll final : public data::BatchSource {
 public:
  // `batch` and `others` must outlive it.
  OneForAll(const data::MicroBatch& batch, const data::MicroBatch& others)
      : batch_(std::shared_ptr<void>(), &batch), others_batch_(others) {}

  // Numbers beside its tokens that the objective asks for and that it has not are 0.
  void fill(const nn::Objective& objective) {
    fill_columns(objective.batch());
    if (objective.estimate() == nullptr) return;
    others_ = std::make_unique<OneForAll>(others_batch_, others_batch_);
    others_->fill(*objective.estimate());
  }
  std::shared_ptr<const data::MicroBatch> make(std::span<const int64_t> /*indices*/) override {
    return batch_;
  }
  BatchSource* others() override { return others_.get(); }

 private:
  void fill_columns(const nn::BatchSpec& spec) {
    const data::MicroBatch& batch = *batch_;
    if (batch.columns.size() == spec.columns.size()) return;
    auto filled = std::make_shared<data::MicroBatch>(batch);
    filled->columns.clear();
    for (const nn::Column& column : spec.columns) {
      const bool is_per_target = column.per == nn::Column::Per::Target;
      const int64_t rows =
          std::ssize(is_per_target ? batch.input_ids : batch.cu_seqlens) - (is_per_target ? 0 : 1);
      filled->columns.push_back(
          {.is_per_target = is_per_target,
           .width = column.width,
           .values = std::vector<float>(static_cast<size_t>(rows * column.width))});
    }
    batch_ = std::move(filled);
  }

  std::shared_ptr<const data::MicroBatch> batch_;
  const data::MicroBatch& others_batch_;
  std::unique_ptr<OneForAll> others_;
};

// Counts what a step does: of the micro-batches that run, and of the others, which are like them.
class StepFigures final : public engine::StepObserver {
 public:
  // Micro-batches: those that run, those of the step, and those of one round through a pipeline.
  struct Counts {
    int64_t shown = 0, all = 0, round = 0;
    int64_t not_shown() const { return all - shown; }
  };
  using OnWork = std::function<void(const ops::Work&, double times)>;

  // `before`: bytes that were live before the plan.
  StepFigures(const dist::Mesh& mesh, const memory::Ledger& ledger, const OnWork& on_work,
              const Counts& counts, int64_t before)
      : mesh_(mesh),
        ledger_(ledger),
        on_work_(on_work),
        counts_(counts),
        live_before_(before),
        before_(traffic_of(mesh)),
        so_far_(static_cast<size_t>(counts.shown)),
        waits_so_far_(static_cast<size_t>(counts.shown) + 1) {}

  // As often in the whole step as it has micro-batches.
  void begin_estimate() override {
    in_estimate_ = true;
    before_estimate_ = traffic_of(mesh_);
    waits_before_estimate_ = ops::num_host_waits();
  }
  void end_estimate() override {
    in_estimate_ = false;
    of_estimate_ = sum(of_estimate_, sum(traffic_of(mesh_), before_estimate_, -1), 1);
    waits_not_shown_ += counts_.not_shown() * (ops::num_host_waits() - waits_before_estimate_) /
                        std::max<int64_t>(1, counts_.shown);
  }

  void begin_step(bool is_last) {
    if (on_work_ && is_last) counter_.emplace(note_);
    waits_before_ = ops::num_host_waits();
    waits_not_shown_ = 0;
  }

  // Rounds of micro-batches but the last are alike: those that are not run have the traffic of the
  // one before it.
  void begin_micro_batch(int64_t number) override {
    in_passes_ = true;
    const MeshTraffic now = traffic_of(mesh_);
    const bool ends_alike = number >= counts_.round && number + 1 == counts_.shown;
    if (ends_alike && counts_.not_shown() > 0)
      in_round_ = sum(now, so_far_[static_cast<size_t>(number - counts_.round)], -1);
    so_far_[static_cast<size_t>(number)] = now;
    waits_so_far_[static_cast<size_t>(number)] = ops::num_host_waits();
    ++num_run_;
  }
  void after_forward() override {
    if (after_forward_ == 0) after_forward_ = ledger_.allocated() - live_before_;
  }
  void after_sweep() override {
    in_passes_ = false;
    waits_so_far_.back() = ops::num_host_waits();
    if (counts_.not_shown() > 0)
      waits_not_shown_ += counts_.not_shown() * (waits_so_far_[2] - waits_so_far_[1]);
  }
  void after_update() override {
    host_waits_ = ops::num_host_waits() - waits_before_ + waits_not_shown_;
  }

  MeshTraffic traffic_shown() const { return sum(traffic_of(mesh_), before_, -1); }

  void end(Prediction& result) {
    counter_.reset();
    if (num_run_ == 0)
      throw UserError(
          "there is nothing to plan: no token of the micro-batch has a loss, and such a step is "
          "skipped; give it labels, or an objective that counts terms");
    result.micro_batches = num_run_;
    result.after_forward = after_forward_;
    result.host_waits = host_waits_;
    // Clipping with the optimizer in backward runs all of them twice.
    const int64_t sweeps = num_run_ / counts_.shown;
    result.traffic = sum(traffic_shown(), in_round_, sweeps * counts_.not_shown() / counts_.round);
    result.traffic = sum(result.traffic, share(of_estimate_, counts_.shown), counts_.not_shown());
  }

 private:
  const dist::Mesh& mesh_;
  const memory::Ledger& ledger_;
  const OnWork& on_work_;
  Counts counts_;
  int64_t live_before_;
  MeshTraffic before_, in_round_{}, before_estimate_{}, of_estimate_{};
  std::vector<MeshTraffic> so_far_;
  std::vector<int64_t> waits_so_far_;
  int64_t waits_before_ = 0, waits_not_shown_ = 0, host_waits_ = 0;
  int64_t num_run_ = 0, after_forward_ = 0;
  int64_t waits_before_estimate_ = 0;
  bool in_passes_ = false, in_estimate_ = false;
  // The second of two, and of three, stands for all that are not run.
  std::function<void(const ops::Work&)> note_ = [this](const ops::Work& work) {
    const bool stands = in_passes_ && (num_run_ - 1) % counts_.shown == 1;
    const double of_estimate =
        static_cast<double>(counts_.all) / static_cast<double>(counts_.shown);
    on_work_(work, in_estimate_ ? of_estimate
                   : stands     ? static_cast<double>(1 + counts_.not_shown())
                                : 1.0);
  };
  std::optional<ops::WorkCounter> counter_;
};

}  // namespace

int64_t bytes_on_device(const Prediction& prediction, at::DeviceType kind) {
  return kind == at::kCUDA ? prediction.peak_reserved : prediction.peak_allocated;
}

int64_t micro_batches_that_matter(const recipe::Recipe& recipe, const dist::MeshShape& mesh) {
  // A stage of a pipeline has several under way at once.
  if (mesh[dist::Axis::Pipeline] > 1) return engine::micro_batches_of_step(recipe, mesh);
  return std::min(engine::micro_batches_of_step(recipe, mesh),
                  engine::simulation_of(recipe).micro_batches);
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
    std::optional<memory::BudgetGuard> on_device, on_host;
    if (options.most.on_device > 0) on_device.emplace(ledger, before + options.most.on_device);
    if (options.most.on_host > 0) on_host.emplace(host, host_before + options.most.on_host);
    const auto twin = models::model_like(model);
    const data::MicroBatch& largest_of_others = options.others ? *options.others : largest;
    OneForAll batches(largest, largest_of_others);
    engine::Run run(*twin, recipe, batches,
                    {.device = at::kMeta,
                     .longest = max_seqlen,
                     .mesh = options.mesh,
                     .extensions = options.extensions});
    const engine::Engine& engine = run.engine();
    // A recording that is refused memory would go on, unrecorded, and take less.
    if (engine.executor->recorded() != nullptr) on_device.reset();
    on_host.reset();  // batches, which come now, do not count there
    batches.fill(*engine.objective);
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
    const dist::MeshShape& shape = options.mesh->shape();
    const int64_t matter = micro_batches_that_matter(recipe, shape);
    // With more micro-batches every plan is a sketch.
    constexpr int64_t kMostShown = 1024;
    const bool sketch = options.sketch || matter > kMostShown;
    const int64_t shown = sketch ? micro_batches_of_sketch(recipe, shape, matter) : matter;
    StepFigures figures(*options.mesh, ledger, options.on_work,
                        {.shown = shown,
                         .all = engine::micro_batches_of_step(recipe, shape),
                         .round = shape[dist::Axis::Pipeline]},
                        before);
    run.observe(figures);
    // The model before training is asked too, unless another one is, before this one is there.
    if (engine::needs_reference(*engine.objective) && recipe.objective.reference.empty() &&
        !sketch) {
      run.log_probs(batches, 1);
      if (batches.others() != nullptr) run.log_probs(*batches.others(), 1);
    }
    const engine::SampleIndices micro_batches(static_cast<size_t>(shown), {0});
    const engine::Simulation simulation = engine::simulation_of(recipe);
    const int64_t steps = options.device == at::kCUDA
                              ? std::max(simulation.steps, simulation.steps_on_gpu)
                              : simulation.steps;
    for (int64_t step = 1; step <= steps; ++step) {
      figures.begin_step(/*is_last=*/step == steps);
      if (recorder != nullptr) recorder->begin_step();
      run.step(micro_batches, recipe.optimizer.lr);
      if (recorder != nullptr) recorder->end_step();
    }
    figures.end(result);
    gathered = bytes_gathered(figures.traffic_shown(), recipe, shape);
    const size_t validations =
        std::max(options.validation.size(), options.validation_others.size());
    for (size_t i = 0; i < validations; ++i) {
      OneForAll samples(
          i < options.validation.size() ? options.validation[i] : largest,
          i < options.validation_others.size() ? options.validation_others[i] : largest_of_others);
      samples.fill(*engine.validated);
      run.evaluate(samples, recipe.train.micro_batch_size);
    }
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
