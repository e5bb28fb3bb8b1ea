// SPDX-License-Identifier: Apache-2.0
#include "train/training_loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "core/memory/ledger.h"
#include "data/mix.h"
#include "engine/exec/policies/number_watch.h"
#include "engine/techniques/behaviour.h"
#include "report/tables.h"
#include "train/out_dir/full_disk.h"
#include "train/records/best_validation.h"
#include "train/records/loss_spike.h"

namespace snug::train {
namespace {

// The first trained weight that holds NaN or infinities, if any rank's does. All ranks call it.
std::string state_of_weights(const std::vector<optim::NamedTensor>& weights,
                             const dist::Mesh& mesh) {
  const auto faulty = std::ranges::find_if(
      weights, [](const optim::NamedTensor& weight) { return !exec::all_finite(weight.tensor); });
  std::vector<std::string> names = {faulty == weights.end() ? "" : faulty->name};
  if (!mesh.is_single()) names = mesh.world().gather_texts(names.front());
  for (const std::string& name : names)
    if (!name.empty())
      return name + " is the first trained weight that now holds NaN or infinities";
  return "all trained weights are finite";
}

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

optim::Decay decay_of(const recipe::TrainOptions& train) {
  switch (train.lr_schedule.value()) {
    case recipe::LrSchedule::Cosine:
      return optim::Decay::Cosine;
    case recipe::LrSchedule::Linear:
      return optim::Decay::Linear;
    case recipe::LrSchedule::Constant:
      return optim::Decay::None;
  }
  throw InternalError("a schedule without a decay");
}

// A warm-up of as many steps as the run has, or more, becomes a tenth of it. One that is given as a
// share is that share, and only if it is 1 the whole run.
int64_t warmup_steps(const recipe::TrainOptions& t, int64_t steps) {
  if (!t.lr_warmup_fraction) return t.lr_warmup_steps < steps ? t.lr_warmup_steps : steps / 10;
  const double share = *t.lr_warmup_fraction;
  const auto whole = static_cast<int64_t>(std::ceil(share * static_cast<double>(steps)));
  return share < 1 ? std::min(whole, steps - 1) : steps;
}

optim::Schedule schedule_of(const recipe::Recipe& recipe, int64_t steps) {
  const recipe::TrainOptions& t = recipe.train;
  return {recipe.optimizer.lr, t.min_lr, warmup_steps(t, steps), steps, decay_of(t)};
}

// A resumed run reads the samples that are left of those that the run before it began with.
checkpoint::TrainingState with_first_samples(checkpoint::TrainingState state,
                                             const data::SamplerOptions& sampler) {
  state.samples_per_epoch = sampler.samples_per_epoch;
  return state;
}

}  // namespace

TrainingLoop::TrainingLoop(const Parts& parts, const engine::RunLength& length,
                           const checkpoint::TrainingState& state)
    : parts_(parts),
      recipe_(parts.recipe),
      state_(with_first_samples(state, length.sampler)),
      phases_(parts.run.engine(), parts.log.record().memory.phases),
      sampler_(sampler_options(length.sampler)),
      schedule_(schedule_of(parts.recipe, length.steps)),
      busy_(parts.run.engine().device.type(), parts.world.position().local_size) {
  parts_.run.observe(phases_);
  tell_of_shorter_warmup();
  tell_of_rare_validations();
  if (recipe_.log_memory == recipe::LogMemory::MicroBatch)
    phases_.record_micro_batches([this](const report::PhaseRecord& record) {
      parts_.log.print(report::memory_line(record));
    });
  // The second, since the first one warms up.
  if (recipe_.profile) profiled_step_ = std::min(state_.step + 1, schedule_.total_steps - 1);
  if (state_.step > 0) {
    sampler_.restore({state_.epoch, state_.next_index});
    parts_.run.scaler().restore(state_.loss_scale, state_.good_steps);
  }
  note_sources();
  updated_ = state_.step;
}

void TrainingLoop::run() {
  parts_.figures.begin_fit();
  if (state_.step == 0 && recipe_.eval.initial_validation) validate();
  parts_.run.engine().ledger().reset_peak();
  parts_.startup.end_stage("before training");
  parts_.startup.begin_first_step();
  while (!is_over()) take_step();
  parts_.figures.end_fit();
  tell_of_skipped_end();
  tell_of_early_stop();
  tell_of_techniques();
}

void TrainingLoop::tell_of_techniques() const {
  for (const engine::Behaviour* technique : engine::behaviours_on(recipe_)) {
    if (technique->note == nullptr) continue;
    std::string note = technique->note(parts_.run.engine());
    if (!note.empty()) parts_.log.record().notes.push_back(std::move(note));
  }
}

// The record of a run that ends so must not look like any other's.
void TrainingLoop::tell_of_skipped_end() const {
  if (skipped_ == 0 || parts_.world.rank() > 0) return;
  parts_.log.record().notes.push_back(fmt::format(
      "the last {} skipped, since loss or gradients were no numbers; the model is that of step {}, "
      "which may be why",
      skipped_ == 1 ? "step was" : fmt::format("{} steps were", skipped_), updated_));
  log_warning(parts_.log.record().notes.back());
}

bool TrainingLoop::is_over() const {
  const auto& most_tokens = recipe_.train.max_tokens;
  return state_.step >= schedule_.total_steps || sampler_.done() ||
         (most_tokens && state_.tokens >= *most_tokens) || stops_early();
}

bool TrainingLoop::stops_early() const {
  const auto& patience = recipe_.train.early_stopping;
  const report::BestRecord& best = parts_.log.record().best;
  const bool is_by_this = best.metric == recipe_.train.best_metric;
  return patience && is_by_this && best.later >= *patience;
}

void TrainingLoop::tell_of_rare_validations() const {
  if (parts_.world.rank() > 0) return;
  const recipe::TrainOptions& t = recipe_.train;
  const int64_t steps = schedule_.total_steps, interval = recipe_.eval.interval;
  // One is the best, and so many after it are not.
  if (t.early_stopping && steps / interval <= *t.early_stopping)
    warn(
        "train.early_stopping = {}: the run has {} steps and validates every {}, so it will not "
        "stop early; validate more often with --eval.interval",
        *t.early_stopping, steps, interval);
  else if (t.keep_best && interval >= steps)
    warn(
        "train.keep_best: the run has {} steps and validates every {}, so only its last model is "
        "compared; validate more often with --eval.interval",
        steps, interval);
}

void TrainingLoop::tell_of_early_stop() const {
  const bool ends_anyway = state_.step >= schedule_.total_steps || sampler_.done();
  if (!stops_early() || ends_anyway || parts_.world.rank() > 0) return;
  const report::BestRecord& best = parts_.log.record().best;
  const std::string what = best.step == 0 ? "gave a number"
                                          : fmt::format("was better than that of step {} ({})",
                                                        best.step, words_on(best));
  parts_.log.record().notes.push_back(
      fmt::format("stopped after step {} of {}: {} {}; to train further: a larger "
                  "--train.early_stopping",
                  state_.step, schedule_.total_steps,
                  best.later == 1 ? "no validation since"
                                  : fmt::format("none of the last {} validations", best.later),
                  what));
  parts_.log.end_line();
  parts_.log.print("Steps    " + parts_.log.record().notes.back());
}

void TrainingLoop::take_step() {
  const auto start = Clock::now();
  busy_.begin();
  parts_.world.set_activity(fmt::format("step {}", state_.step + 1));
  phases_.begin_step(state_.step);
  const double lr = schedule_.lr_at(state_.step);
  epoch_ = state_.epoch + 1;
  std::optional<StepTrace> profile;
  if (state_.step == profiled_step_)
    profile.emplace(parts_.run.engine().ledger(), parts_.run.engine().host_ledger());
  const engine::StepResult result = [&] {
    const trace::Timed timed(trace::Track::Computation, "step", std::to_string(state_.step + 1));
    return step_with_splits(next_micro_batches(), lr);
  }();
  check_numbers(result);
  count_in(result);
  parts_.startup.end_step();
  log_step(result, lr, seconds_since(start));
  tell_of_spike();
  tell_of_epoch();
  if (profile) write_profile(*profile);
  const auto save_interval = recipe_.train.save_interval.value_or(0);
  // Some ranks hear of it a step before the others.
  const bool stop = parts_.mesh.world().sum({InterruptGuard::requested() ? 1.0 : 0.0}).front() > 0;
  const bool validates = state_.step % recipe_.eval.interval == 0;
  // So that the checkpoint's record has its loss. A late update is still to come into the last
  // weights.
  if (validates && !(is_over() && parts_.run.engine().updater->is_late())) validate();
  // Saved before the last delayed update is applied, so that a resumed run takes the same steps.
  const bool is_due = save_interval > 0 && state_.step % save_interval == 0;
  if (stop || (is_due && !is_in_doubt()))
    save_checkpoint();
  else if (is_over() && parts_.saves_last_state && !is_in_doubt())
    save_last_state();
  if (is_over()) parts_.run.finish();
  if (validates && is_over()) validate_at_end();
  if (!stop) return;
  parts_.figures.fill();
  parts_.figures.fill_ranks(parts_.mesh);
  throw Interrupted(
      fmt::format("stopped on request after step {}; continue with --resume auto", state_.step));
}

// A step whose loss or gradients are no numbers is skipped, and the weights stay as they were. One
// may be a faulty row; several in a row are not, except while the scale of float16 losses falls
// from 2^16 to below the smallest float16 number.
void TrainingLoop::check_numbers(const engine::StepResult& result) {
  if (result.terms == 0) {
    if (parts_.world.rank() == 0)
      log_warning(
          fmt::format("step {} has no token to learn: it is skipped, the weights stay as they were",
                      state_.step + 1));
    return;
  }
  constexpr int64_t kMostSkipped = 3, kMostSkippedScaled = 40;
  const bool finite = std::isfinite(result.loss) && std::isfinite(result.grad_norm);
  if (result.updated && finite) {
    skipped_ = 0;
    updated_ = state_.step + 1;
    return;
  }
  ++skipped_;
  const bool scales = parts_.run.engine().precision.loss_scaling;
  const bool was_all = !scales && skipped_ == schedule_.total_steps;
  const bool ends =
      result.updated || was_all || skipped_ == (scales ? kMostSkippedScaled : kMostSkipped);
  // While the scale of float16 losses falls, gradients overflow that need no explanation.
  // With updates in the backward the weights have those gradients before anyone could look.
  const bool is_too_late =
      parts_.run.engine().updater->updates_in_sweep() && !std::isfinite(result.grad_norm);
  const std::string where = scales && !ends ? ""
                            : is_too_late
                                ? "the update in the backward has brought them into the weights"
                                : parts_.run.first_non_finite();
  const std::string what = fmt::format("the loss is {} and the gradient norm {} at step {}",
                                       result.loss, result.grad_norm, state_.step + 1);
  if (ends)
    throw UserError(
        "{}{}: the learning rate {} is too high for this model, or the data or the weights are "
        "faulty; lower --optimizer.lr or set --train.max_norm 1.0. Earlier checkpoints are as they "
        "were; {}; {}",
        what, skipped_ > 1 ? fmt::format(", the last of {} steps in a row", skipped_) : "",
        recipe_.optimizer.lr, where, state_of_weights(parts_.run.engine().parameters, parts_.mesh));
  if (!scales && parts_.world.rank() == 0)
    log_warning(
        fmt::format("{}: the step is skipped, the weights stay as they were; {}", what, where));
}

void TrainingLoop::write_profile(StepTrace& profile) const {
  const std::filesystem::path folder = recipe_.out_dir;
  const int rank = parts_.mesh.rank();
  const bool alone = parts_.mesh.is_single();
  const auto file = folder / (alone ? "trace.json" : fmt::format("trace/rank-{}.json", rank));
  std::filesystem::create_directories(file.parent_path());
  profile.write(file, rank);
  parts_.log.print(
      fmt::format("Profile  step {}: {}; open it in https://ui.perfetto.dev or chrome://tracing",
                  state_.step, (alone ? file : file.parent_path()).string()));
}

void TrainingLoop::count_in(const engine::StepResult& result) {
  ++state_.step;
  state_.micro_batches += result.micro_batches;
  state_.tokens += result.tokens;
  const data::DataPosition position = sampler_.position();
  state_.epoch = position.epoch;
  state_.next_index = position.next_index;
  state_.loss_scale = parts_.run.scaler().scale();
  state_.good_steps = parts_.run.scaler().good_steps();
  note_sources();
}

void TrainingLoop::note_sources() const {
  std::vector<report::SourceRecord>& sources = parts_.log.record().sources;
  for (size_t i = 0; i < sources.size(); ++i) sources[i].read = sampler_.read_of_ranges().at(i);
}

// --- the samples of a step ---

data::SamplerOptions TrainingLoop::sampler_options(data::SamplerOptions options) const {
  options.micro_batch_size = micro_batch_size();
  options.first = longest_samples_first();
  return options;
}

// The first step has the longest samples, so that a run that does not fit fails at once: as many as
// it has in all, so that they are the same for any micro-batch.
std::vector<int64_t> TrainingLoop::longest_samples_first() const {
  const data::SampleStore& samples = parts_.dataset.train;
  const int64_t count = std::min(recipe_.train.global_batch_size, samples.count());
  return samples.longest_samples(count, recipe_.data.packing);
}

// All processes must run the same number of micro-batches, so with several none splits its own.
int64_t TrainingLoop::micro_batch_size() const {
  const int64_t size = recipe_.train.micro_batch_size;
  const bool was_split = !parts_.mesh.is_single() && state_.micro_batch_size > 0;
  return was_split ? std::min(size, state_.micro_batch_size) : size;
}

engine::SampleIndices TrainingLoop::next_micro_batches() {
  const dist::Group& readers = parts_.mesh.data();
  const int64_t rank = readers.rank(), ranks = readers.size();
  engine::SampleIndices micro_batches = sampler_.next_step(rank, ranks);
  engine::SampleIndices expected = micro_batches;
  for (auto& indices : sampler_.upcoming_step(rank, ranks)) expected.push_back(std::move(indices));
  parts_.run.expect(expected);
  // A split once found necessary holds for the rest of the run.
  for (int64_t size = parts_.mesh.is_single() ? recipe_.train.micro_batch_size : 0;
       state_.micro_batch_size > 0 && size > state_.micro_batch_size; size = (size + 1) / 2)
    micro_batches = engine::split_micro_batches(micro_batches);
  return micro_batches;
}

engine::StepResult TrainingLoop::step_with_splits(engine::SampleIndices micro_batches, double lr) {
  while (true) {
    try {
      return parts_.run.step(micro_batches, lr);
    } catch (const OutOfMemory& error) {
      const int64_t size =
          state_.micro_batch_size > 0 ? state_.micro_batch_size : recipe_.train.micro_batch_size;
      if (recipe_.train.on_oom != recipe::OnOom::Split || size == 1 || parts_.run.is_updating())
        throw;
      state_.micro_batch_size = (size + 1) / 2;
      micro_batches = engine::split_micro_batches(micro_batches);
      parts_.log.print(fmt::format("A micro-batch of {} does not fit; continuing with {}. {}", size,
                                   state_.micro_batch_size, error.what()));
    }
  }
}

// --- logs and checkpoints ---

void TrainingLoop::tell_of_shorter_warmup() const {
  const recipe::TrainOptions& t = recipe_.train;
  if (t.lr_warmup_fraction || t.lr_warmup_steps < schedule_.total_steps) return;
  parts_.log.print(
      fmt::format("Warm-up  {} step{} instead of train.lr_warmup_steps = {}: the whole run has {}",
                  schedule_.warmup_steps, schedule_.warmup_steps == 1 ? "" : "s", t.lr_warmup_steps,
                  schedule_.total_steps));
}

void TrainingLoop::log_step(const engine::StepResult& result, double lr, double seconds) {
  const double rate = static_cast<double>(result.tokens) / std::max(1e-9, seconds);
  const report::RunRecord& record = parts_.log.record();
  const int64_t num_experts = parts_.run.engine().routing.num_experts;
  const double expert_load = report::busiest_over_mean(result.routed, num_experts);
  report::Figures figures = named(result.figures);
  report::StepStatus status{
      .epoch = epoch_,
      .iter = state_.micro_batches,
      .step = state_.step,
      .total_steps = schedule_.total_steps,
      .loss = result.loss,
      .val_loss =
          record.validation.empty() ? std::optional<double>() : record.validation.back().loss,
      .iter_seconds = seconds / static_cast<double>(std::max<int64_t>(1, result.iterations)),
      .tokens_per_second = rate,
      .share_of_peak = parts_.figures.share_of_peak(rate),
      .memory_bytes = parts_.run.engine().ledger().at_peak().allocated,
      .reserved_bytes = memory::peak_reserved_on(parts_.run.engine().device.type()),
      .budget_bytes = record.device.budget_bytes,
      .expert_load = expert_load,
      .num_alloc_retries = memory::cuda_alloc_retries()};
  const auto margin = figures.find("rewards_margin");
  status.accuracy = report::accuracy_in(figures);
  if (margin != figures.end()) status.margin = margin->second;
  if (const auto sft = figures.find("sft_loss"); sft != figures.end())
    status.sft_loss = sft->second;
  parts_.log.step({.step = state_.step,
                   .loss = result.loss,
                   .seconds = seconds,
                   .tokens = result.tokens,
                   .padded_tokens = result.padded_tokens,
                   .lr = lr,
                   .grad_norm = result.grad_norm,
                   .raw_tokens = result.raw_tokens,
                   .epoch = epoch_,
                   .utilization = busy_.share(),
                   .expert_load = expert_load,
                   .figures = std::move(figures)},
                  status);
  parts_.log.routed(result.routed, num_experts);
  parts_.live.step(status, seconds);
}

report::Figures TrainingLoop::named(const std::vector<double>& figures) const {
  report::Figures all;
  const std::vector<std::string> names = parts_.run.engine().objective->figures();
  // A mean over none, such as over the good answers of a step without any, is left out.
  for (size_t i = 0; i < figures.size(); ++i)
    if (!std::isnan(figures[i])) all[names.at(i)] = figures[i];
  return all;
}

// A loss that stays high is told once: from then on it is what steps are compared with.
void TrainingLoop::tell_of_spike() {
  if (parts_.world.rank() > 0) return;
  const auto spike = loss_spike(parts_.log.record().steps);
  if (!spike || (spike_ > 0 && state_.step - spike_ <= spike->steps)) return;
  spike_ = state_.step;
  log_warning(
      fmt::format("the loss of step {} is {:.4f}, far above the {:.4f} usual in the {} steps "
                  "before: a row unlike the others, or too high a learning rate ({}); if it stays "
                  "there, lower --optimizer.lr or set --train.max_norm 1.0",
                  state_.step, spike->loss, spike->usual, spike->steps, recipe_.optimizer.lr));
}

// At the end of each epoch of several.
void TrainingLoop::tell_of_epoch() const {
  const bool is_only = epoch_ == 1 && is_over();
  if (state_.epoch < epoch_ || is_only) return;
  parts_.log.print(report::epoch_text(parts_.log.record().epochs.back()));
}

void TrainingLoop::validate_at_end() {
  const auto& done = parts_.log.record().validation;
  if (done.empty() || done.back().step != state_.step) validate();
}

// Of a mix: each source by itself, and all together, where each counts as much as it holds out,
// also if only its first batches were looked at.
engine::ValidationResult TrainingLoop::evaluate(report::Figures& sources) const {
  const data::Dataset& dataset = parts_.dataset;
  const int64_t most = recipe_.eval.max_iters * recipe_.train.micro_batch_size;
  if (dataset.sources.empty())
    return parts_.run.evaluate(parts_.validation_batches, dataset.validation.count(),
                               recipe_.eval.max_iters);
  std::vector<engine::WeightedResult> results;
  int64_t begin = 0;
  for (const data::MixedSource& source : dataset.sources) {
    const int64_t count = source.validation_end - std::exchange(begin, source.validation_end);
    if (count == 0) continue;
    const engine::ValidationResult result = parts_.run.evaluate(
        parts_.validation_batches, count, recipe_.eval.max_iters, begin - count);
    if (result.terms > 0) sources[source.name] = result.loss;
    const double seen = static_cast<double>(most > 0 ? std::min(count, most) : count);
    results.push_back({result, static_cast<double>(count) / seen});
  }
  return engine::together(results, *parts_.run.engine().validated);
}

void TrainingLoop::validate() {
  const data::Dataset& dataset = parts_.dataset;
  if (dataset.validation.empty()) return;
  const Live::Doing doing(parts_.live, "validating");
  report::Figures sources;
  const engine::ValidationResult result = evaluate(sources);
  if (result.terms == 0)
    return warn("no validation: none of the {} held-out samples has a token to learn{}",
                dataset.validation.count(),
                dataset.validation_pictures.rows ? "; their pictures could not be read" : "");
  const report::ValidationRecord record{.step = state_.step,
                                        .loss = result.loss,
                                        .tokens = result.tokens,
                                        .figures = named(result.figures),
                                        .sources = sources};
  parts_.log.validation(record);
  if (!std::isfinite(result.loss) && parts_.world.rank() == 0)
    log_warning(fmt::format(
        "the validation loss at step {} is {}: the model gives no numbers on held-out rows; train "
        "from the checkpoint before with a lower --optimizer.lr than {}",
        state_.step, result.loss, recipe_.optimizer.lr));
  const report::Figures figures = named(result.figures);
  // Beside a teacher the loss is no log-probability of the answers, which has a figure of its own.
  const auto sft_loss = figures.find("sft_loss");
  std::string more = fmt::format(
      "{}perplexity {:.2f} ({} tokens)",
      sft_loss == figures.end() ? "" : fmt::format("sft_loss {:.4f}, ", sft_loss->second),
      std::exp(sft_loss == figures.end() ? result.loss : sft_loss->second),
      with_commas(result.tokens));
  if (figures.contains("rewards_accuracy"))
    more = fmt::format("accuracy {:.1f} %, margin {:.4f} ({} pairs)",
                       100 * figures.at("rewards_accuracy"), figures.at("rewards_margin"),
                       with_commas(result.terms));
  else if (figures.contains("rewards_margin"))
    more = fmt::format("margin {:.4f}, kl {:.4f} ({} answers)", figures.at("rewards_margin"),
                       figures.at("kl"), with_commas(result.terms));
  else if (const auto accuracy = report::accuracy_in(figures))
    more = fmt::format("accuracy {:.1f} % ({} texts)", 100 * *accuracy, with_commas(result.terms));
  parts_.log.print(
      fmt::format("Validation at step {}: loss {:.4f}, {}", state_.step, result.loss, more));
  for (const data::MixedSource& source : dataset.sources)
    if (const auto loss = sources.find(source.name); loss != sources.end())
      parts_.log.print(fmt::format("  {}: loss {:.4f}", printable(source.name), loss->second));
  compare_with_best(record);
}

void TrainingLoop::compare_with_best(report::ValidationRecord validation) {
  if (!recipe_.train.early_stopping && !recipe_.train.keep_best) return;
  // All ranks decide by the numbers of the first.
  dist::Group& world = parts_.mesh.world();
  const auto of_first = [&](double& value) {
    value = world.sum({world.rank() == 0 ? value : 0.0}).front();
  };
  of_first(validation.loss);
  for (auto& [_, value] : validation.figures) of_first(value);
  const bool is_best =
      is_best_yet(parts_.log.record().best, validation, recipe_.train.best_metric.value());
  if (is_best && parts_.write_best) parts_.write_best();
}

void TrainingLoop::save_checkpoint() {
  const Live::Doing doing(parts_.live, "saving");
  parts_.figures.fill();
  parts_.log.check_folder(&parts_.mesh.world());
  const auto folder = checkpoint::save(
      recipe_.out_dir, state_, parts_.run.engine().training_tensors(), parts_.log.unfinished(),
      &parts_.mesh.world(), recipe::mesh_text(parts_.mesh.shape()));
  if (parts_.world.rank() > 0) return;
  if (recipe_.train.keep_checkpoints && !is_in_doubt())
    checkpoint::keep_newest(recipe_.out_dir, state_.step, *recipe_.train.keep_checkpoints);
  const int64_t bytes = checkpoint::size_bytes(folder);
  parts_.log.print(fmt::format("Checkpoint {} ({})", folder.string(), format_bytes(bytes)));
  parts_.log.write_unfinished();
  if (!is_over() && std::filesystem::space(folder).available < static_cast<uintmax_t>(bytes))
    warn(
        "the disk of {} has no room for another checkpoint of {}, so the run will stop when it "
        "writes one; free some space, or keep fewer with --train.keep_checkpoints",
        recipe_.out_dir, format_bytes(bytes));
}

// The run is done without it.
void TrainingLoop::save_last_state() {
  try {
    save_checkpoint();
  } catch (const UserError& error) {
    if (parts_.world.rank() == 0)
      log_warning(
          fmt::format("no checkpoint of the last step, from which this run could be "
                      "trained further: {}",
                      error.what()));
  }
}

}  // namespace snug::train
