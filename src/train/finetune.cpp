// SPDX-License-Identifier: Apache-2.0
#include "train/finetune.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/version.h"
#include "checkpoint/training_checkpoint.h"
#include "config/batches.h"
#include "config/differences.h"
#include "config/print.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "dist/agreement.h"
#include "dist/check_agreement.h"
#include "dist/world.h"
#include "launch/rank_record.h"
#include "ops/device.h"
#include "optim/schedule.h"
#include "report/tables.h"
#include "setup/accelerator.h"
#include "setup/adapters.h"
#include "setup/strategy.h"
#include "train/base_model.h"
#include "train/host.h"
#include "train/interrupt.h"
#include "train/live.h"
#include "train/open_data.h"
#include "train/out_of_memory.h"
#include "train/run_log.h"
#include "train/run_plan.h"
#include "train/sample_answers.h"
#include "train/startup.h"
#include "train/stepper.h"
#include "train/validation.h"

namespace snug::train {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Cores differ from machine to machine.
std::string what_ranks_agree_on(config::Recipe recipe) {
  recipe.num_threads = 0;
  std::string text = fmt::format("program = snug {}\n", kVersion);
  const nlohmann::json flat = config::recipe_json(recipe).flatten();
  for (const auto& [path, value] : flat.items()) {
    std::string key = path.substr(1);
    std::replace(key.begin(), key.end(), '/', '.');
    text += fmt::format("{} = {}\n", key, value.dump());
  }
  return text;
}

// One fine-tuning run. Members are in the order in which they come to be; run() is the main path.
class Finetune {
 public:
  Finetune(const config::Recipe& recipe, const std::string& command)
      : recipe_(recipe), command_(command) {}

  void run();

 private:
  void join();
  void open_model();
  void open_data();
  void make_mesh();
  void choose_techniques();
  PlannedRun planned() const;
  void load_weights();
  void set_earlier_runs_aside();
  void resume();
  void train();
  void finish();

  bool train_step();
  SampleIndices next_micro_batches();
  int64_t micro_batch_size() const;
  int64_t samples_per_epoch() const;
  StepResult step_with_splits(SampleIndices micro_batches, double lr);
  void log_step(const StepResult& result, double lr, double seconds);
  void run_validation();
  void save_checkpoint();
  std::vector<int64_t> longest_samples_first() const;
  int64_t count_steps() const;
  SampleAnswerOptions sample_options() const;
  void show_samples();
  bool is_over() const;
  bool stop_wanted() const;
  [[noreturn]] void explain(const OutOfMemory& error);
  void fill_record();
  void fill_ranks();

  config::Recipe recipe_;
  std::string command_;
  StartupClock startup_;
  Host host_;
  int64_t budget_ = 0;
  // Destroyed last of all: what is below may still use its groups.
  std::shared_ptr<dist::World> world_;
  std::shared_ptr<dist::Mesh> mesh_;
  std::unique_ptr<Live> live_;

  std::unique_ptr<BaseModel> base_;
  data::Dataset dataset_;
  std::unique_ptr<data::BatchSource> train_batches_, validation_batches_;
  int64_t max_seqlen_ = 0;
  std::unique_ptr<RunLog> log_;
  setup::Engine engine_;
  std::unique_ptr<PhaseRecorder> phases_;
  std::unique_ptr<Stepper> stepper_;
  std::unique_ptr<data::Sampler> sampler_;
  optim::Schedule schedule_;
  checkpoint::TrainingState state_;
  std::optional<std::filesystem::path> resume_from_;
  std::optional<Resumed> resumed_;

  double flops_ = 0;
  double peak_flops_per_second_ = 0;
};

void Finetune::run() {
  startup_.end_stage("program");
  const dist::Position position = dist::position_in_environment();
  live_ = std::make_unique<Live>(recipe_.out_dir, command_, position.rank, position.size);
  live_->set_model(recipe_.checkpoint_dir.empty() ? recipe_.model.config : recipe_.checkpoint_dir);
  host_ = prepare_host(recipe_.memory_budget, recipe_.num_threads, recipe_.accelerator);
  budget_ = host_.budget_bytes;
  live_->set_device(host_.device.type(), setup::device_name(host_.device), budget_);
  startup_.end_stage("device");
  join();
  resume();
  log_ = std::make_unique<RunLog>(recipe_, command_, resumed_, world_->rank() == 0);
  report::RunRecord& record = log_->record();
  try {
    open_model();
    startup_.end_stage("model");
    open_data();
    startup_.end_stage("data");
    live_->state("planning");
    choose_techniques();
    check_plan(planned(), *log_);
    live_->set_predicted_peak(record.memory.predicted->peak_allocated);
    startup_.end_stage("plan");
    live_->state("loading");
    load_weights();
    startup_.end_stage("weights");
    live_->state("training");
    train();
    finish();
    record.outcome = "ok";
  } catch (const OutOfMemory& error) {
    log_->end_line();
    explain(error);
  } catch (const std::exception& error) {
    log_->end_line();
    record.outcome = "error";
    record.reason = error.what();
    fill_record();
    log_->write();
    live_->ended("error", record.reason);
    throw;
  }
  fill_record();
  log_->write();
  live_->ended("ok");
}

// The other processes of this run, if there are any.
void Finetune::join() {
  dist::WorldOptions options{.timeout_seconds = static_cast<double>(recipe_.collective_timeout)};
  if (dist::position_in_environment().size > 1)
    options.status_folder = launch::logs_folder(recipe_.out_dir);
  world_ = dist::World::join(options);
  dist::MeshShape all;
  all[dist::Axis::Replicate] = world_->size();
  dist::check_agreement(world_->make_mesh(all, at::kCPU)->world(), what_ranks_agree_on(recipe_));
  make_mesh();
}

void Finetune::make_mesh() {
  const setup::Strategy strategy =
      setup::strategy_of(recipe_, world_->size(), world_->position().local_size);
  mesh_ = world_->make_mesh(strategy.mesh, host_.device);
}

void Finetune::resume() {
  if (recipe_.resume == "false") return;
  if (recipe_.resume == "true" || recipe_.resume == "auto") {
    resume_from_ = checkpoint::find_latest(recipe_.out_dir, mesh_->world());
    if (!resume_from_ && recipe_.resume == "true")
      throw UserError(
          "--resume true: there is no checkpoint in {}; use --resume auto to start afresh",
          recipe_.out_dir);
  } else {
    resume_from_ = recipe_.resume;
    if (!std::filesystem::exists(*resume_from_ / "state.json"))
      throw UserError(
          "resume = {}: is neither true, false, auto nor the folder of a checkpoint, such as "
          "{}/step-000100",
          recipe_.resume, recipe_.out_dir);
  }
  if (!resume_from_) return;
  state_ = checkpoint::load_state(*resume_from_);
  resumed_ = Resumed{.step = state_.step,
                     .before = report::read_run_json(*resume_from_ / checkpoint::kRecordName)};
  check_same_meaning(recipe_, resumed_->before.recipe, *resume_from_);
}

void Finetune::open_model() {
  base_ = std::make_unique<BaseModel>(recipe_);
  const setup::ParameterCount count = setup::count_parameters(base_->model());
  const std::string& name =
      recipe_.checkpoint_dir.empty() ? recipe_.model.config : recipe_.checkpoint_dir;
  log_->record().model = {.id = name, .parameters = count.total, .trainable = count.trained};
  log_->record().world_size = world_->size();
  log_->record().mesh = dist::show(mesh_->shape());
  log_->record().device = {.name = setup::device_name(host_.device), .budget_bytes = budget_};
  log_->print(fmt::format(
      "Model    {}: {} parameters, {} trained, {}", name, with_commas(count.total),
      count.trained == count.total ? "all"
                                   : fmt::format("{} ({:.2f} %)", with_commas(count.trained),
                                                 100.0 * static_cast<double>(count.trained) /
                                                     static_cast<double>(count.total)),
      recipe_.precision));
}

void Finetune::open_data() {
  recipe_.train.max_seq_length = longest_sample(recipe_, base_->model());
  dataset_ = train::open_data(recipe_, base_->model(), recipe_.checkpoint_dir, base_->tokenizer());
  train_batches_ = dataset_.train_batches();
  validation_batches_ = dataset_.validation_batches();
  const data::SampleStore& train = dataset_.train;
  max_seqlen_ = std::max(train.longest(), dataset_.validation.longest());
  check_sample_options(dataset_, sample_options());
  log_->print(
      fmt::format("Data     {} training and {} validation samples, {} tokens, longest {}, {}",
                  with_commas(train.count()), with_commas(dataset_.validation.count()),
                  with_commas(train.total_tokens()), max_seqlen_,
                  is_synthetic(recipe_.data) ? "of a random rule: for measuring, not for learning"
                                             : "prompt style " + dataset_.prompt_style));
  if (resume_from_ && state_.data_fingerprint != train.fingerprint())
    throw UserError(
        "{} was written while training on other data; resume with the same data options, or start "
        "afresh with --resume false",
        resume_from_->string());
}

PlannedRun Finetune::planned() const {
  return {.model = base_->model(),
          .recipe = recipe_,
          .dataset = dataset_,
          .max_seqlen = max_seqlen_,
          .host = host_,
          .mesh = *mesh_};
}

// --fit: techniques and micro-batch for the memory there is. The first process chooses for all,
// since times that are measured differ.
void Finetune::choose_techniques() {
  if (!recipe_.fit) return;
  if (mesh_->is_single()) {
    recipe_ = fitting_recipe(planned(), *log_);
    return;
  }
  std::vector<std::string> chosen;
  try {
    chosen = dist::agree(&mesh_->world(), [this] {
      return world_->rank() == 0
                 ? nlohmann::json(config::differences(recipe_, fitting_recipe(planned(), *log_)))
                       .dump()
                 : std::string();
    });
  } catch (const OutOfMemory& error) {
    // What went from rank to rank is the text alone.
    throw PlanDoesNotFit(error.what(), {.phase = "plan"});
  }
  config::apply_differences(recipe_, nlohmann::json::parse(chosen.front()));
  make_mesh();
  log_->record().recipe = config::recipe_json(recipe_);
  log_->record().mesh = dist::show(mesh_->shape());
}

void Finetune::load_weights() {
  engine_ = setup::make_engine(base_->model(), recipe_, host_.device, max_seqlen_, mesh_);
  // A training checkpoint holds what trains.
  if (!resume_from_ || !base_->trains_whole()) base_->load(engine_);
  if (resume_from_) {
    checkpoint::load_tensors(*resume_from_, engine_.training_tensors(), &mesh_->world());
    engine_.optimizer->set_num_steps(state_.step);
    log_->print(fmt::format("Resume   {} at step {}", resume_from_->string(), state_.step));
  }
  base_->close();
  set_earlier_runs_aside();
  engine_.weights_changed();
  if (resume_from_)
    checkpoint::load_late_weights(*resume_from_, engine_.training_tensors(), &mesh_->world());
  phases_ = std::make_unique<PhaseRecorder>(engine_, log_->record().memory.phases);
  stepper_ = std::make_unique<Stepper>(engine_, recipe_, *train_batches_, *phases_);
}

void Finetune::set_earlier_runs_aside() {
  if (world_->rank() > 0) return;
  if (const auto folder = checkpoint::set_aside(recipe_.out_dir, resume_from_ ? state_.step : -1))
    log_->print(fmt::format("Earlier  checkpoints that are not this run's are now in {}",
                            folder->string()));
}

int64_t Finetune::count_steps() const {
  int64_t steps = sampler_->num_steps();
  if (recipe_.train.max_tokens) {
    const double per_sample = static_cast<double>(dataset_.train.total_tokens()) /
                              static_cast<double>(dataset_.train.count());
    const double per_step = per_sample * static_cast<double>(recipe_.train.global_batch_size);
    const auto enough =
        static_cast<int64_t>(std::ceil(static_cast<double>(*recipe_.train.max_tokens) / per_step));
    steps = std::min(steps, std::max<int64_t>(1, enough));
  }
  return steps;
}

// The run's largest micro-batch comes in its first step, so that a run that starts also ends. Where
// gradients are accumulated it comes second, since it then meets the first one's gradients.
std::vector<int64_t> Finetune::longest_samples_first() const {
  const config::TrainOptions& t = recipe_.train;
  const int64_t together = std::min(2 * t.micro_batch_size, t.global_batch_size);
  std::vector<int64_t> longest =
      dataset_.train.longest_samples(std::min(together, dataset_.train.count()));
  if (static_cast<int64_t>(longest.size()) == 2 * t.micro_batch_size)
    std::rotate(longest.begin(), longest.begin() + t.micro_batch_size, longest.end());
  return longest;
}

SampleAnswerOptions Finetune::sample_options() const {
  return {.count = recipe_.eval.num_samples,
          .max_new_tokens = recipe_.eval.max_new_tokens.value_or(100),
          .first = recipe_.eval.evaluate_example,
          .seed = recipe_.seed};
}

void Finetune::train() {
  const config::TrainOptions& t = recipe_.train;
  const bool bounded = t.max_steps.has_value() || t.max_tokens.has_value();
  const int64_t token_steps = t.max_tokens ? *t.max_tokens : 0;  // a step has at least one token
  sampler_ = std::make_unique<data::Sampler>(
      data::SamplerOptions{.num_samples = dataset_.train.count(),
                           .global_batch_size = t.global_batch_size,
                           .micro_batch_size = micro_batch_size(),
                           .samples_per_epoch = samples_per_epoch(),
                           .epochs = t.epochs.value_or(bounded ? 0 : 1),
                           .max_steps = t.max_steps.value_or(t.epochs ? 0 : token_steps),
                           .seed = recipe_.data.seed,
                           .first = longest_samples_first()});
  const int64_t total = count_steps();
  const int64_t warmup =
      t.lr_warmup_fraction
          ? static_cast<int64_t>(*t.lr_warmup_fraction * static_cast<double>(total))
          : t.lr_warmup_steps;
  schedule_ = {recipe_.optimizer.lr, t.min_lr, warmup, total};
  const bool said_of_recipe = t.max_steps && t.lr_warmup_steps >= *t.max_steps;
  if (warmup >= total && !said_of_recipe)
    warn(
        "train.lr_warmup_steps = {} is not shorter than the run's {} steps: the learning rate "
        "never reaches {}",
        warmup, total, recipe_.optimizer.lr);
  if (resume_from_) {
    sampler_->restore({state_.epoch, state_.next_index});
    stepper_->scaler().restore(state_.loss_scale, state_.good_steps);
  }
  state_.data_fingerprint = dataset_.train.fingerprint();
  flops_ = base_->model().flops_per_token(
      static_cast<double>(dataset_.train.total_tokens()) /
      static_cast<double>(std::max<int64_t>(1, dataset_.train.count())));
  peak_flops_per_second_ = setup::peak_flops_per_second(host_.device, engine_.precision.compute);
  if (host_.device.is_cuda()) peak_flops_per_second_ *= world_->size();
  if (!resume_from_ && recipe_.eval.initial_validation) run_validation();
  engine_.ledger().reset_peak();
  const InterruptGuard interrupt;
  startup_.end_stage("before training");
  startup_.begin_first_step();
  while (!is_over() && train_step()) {
  }
}

bool Finetune::is_over() const {
  return state_.step >= schedule_.total_steps || sampler_->done() || stop_wanted();
}

bool Finetune::stop_wanted() const {
  return recipe_.train.max_tokens && state_.tokens >= *recipe_.train.max_tokens;
}

// False when the person asked to stop.
bool Finetune::train_step() {
  const auto start = Clock::now();
  world_->set_activity(fmt::format("step {}", state_.step + 1));
  phases_->begin_step(state_.step);
  const double lr = schedule_.lr_at(state_.step);
  const StepResult result = step_with_splits(next_micro_batches(), lr);
  if (!std::isfinite(result.loss) && result.updated)
    throw UserError(
        "the loss is {} at step {}: the learning rate {} is too high for this model, or the data "
        "is "
        "broken; lower --optimizer.lr or set --train.max_norm 1.0",
        result.loss, state_.step + 1, recipe_.optimizer.lr);
  ++state_.step;
  state_.micro_batches += result.micro_batches;
  state_.tokens += result.tokens;
  const data::DataPosition position = sampler_->position();
  state_.epoch = position.epoch;
  state_.next_index = position.next_index;
  state_.loss_scale = stepper_->scaler().scale();
  state_.good_steps = stepper_->scaler().good_steps();
  startup_.end_step();
  log_step(result, lr, seconds_since(start));
  const auto save_interval = recipe_.train.save_interval.value_or(0);
  // Some ranks hear of it a step before the others.
  const bool stop = mesh_->world().sum({InterruptGuard::requested() ? 1.0 : 0.0}).front() > 0;
  const bool validates = state_.step % recipe_.eval.interval == 0;
  if (validates && !is_over()) run_validation();  // so that the checkpoint's record has its loss
  // Saved before the last update is brought forward: a run that goes on from here is not to notice.
  if (stop || (save_interval > 0 && state_.step % save_interval == 0)) save_checkpoint();
  if (is_over()) engine_.finish_updates();
  if (validates && is_over()) run_validation();
  if (stop)
    throw UserError("stopped on request after step {}; go on with --resume auto", state_.step);
  return true;
}

// Several processes run as many micro-batches each, which splitting each one's would not keep.
int64_t Finetune::micro_batch_size() const {
  const int64_t size = recipe_.train.micro_batch_size;
  const bool was_split = !mesh_->is_single() && state_.micro_batch_size > 0;
  return was_split ? std::min(size, state_.micro_batch_size) : size;
}

// train.limit_train_batches, of all processes.
int64_t Finetune::samples_per_epoch() const {
  const config::BatchLimit limit = *config::batch_limit(recipe_.train.limit_train_batches);
  if (limit.count == 0 && limit.share == 1) return 0;
  const int64_t together = recipe_.train.micro_batch_size * mesh_->data().size();
  const int64_t batches = (dataset_.train.count() + together - 1) / together;
  return limit.of(batches) * together;
}

SampleIndices Finetune::next_micro_batches() {
  const int64_t rank = mesh_->data().rank(), ranks = mesh_->data().size();
  SampleIndices micro_batches = sampler_->next_step(rank, ranks);
  SampleIndices expected = micro_batches;
  for (auto& indices : sampler_->upcoming_step(rank, ranks)) expected.push_back(std::move(indices));
  train_batches_->expect(expected);
  // A split once found necessary holds for the rest of the run.
  for (int64_t size = mesh_->is_single() ? recipe_.train.micro_batch_size : 0;
       state_.micro_batch_size > 0 && size > state_.micro_batch_size; size = (size + 1) / 2)
    micro_batches = split_micro_batches(micro_batches);
  return micro_batches;
}

StepResult Finetune::step_with_splits(SampleIndices micro_batches, double lr) {
  while (true) {
    try {
      return stepper_->step(micro_batches, lr);
    } catch (const OutOfMemory& error) {
      const int64_t size =
          state_.micro_batch_size > 0 ? state_.micro_batch_size : recipe_.train.micro_batch_size;
      if (recipe_.train.on_oom != "split" || size == 1 || stepper_->is_updating()) throw;
      state_.micro_batch_size = (size + 1) / 2;
      micro_batches = split_micro_batches(micro_batches);
      log_->print(fmt::format("A micro-batch of {} does not fit; going on with {}. {}", size,
                              state_.micro_batch_size, error.what()));
    }
  }
}

void Finetune::log_step(const StepResult& result, double lr, double seconds) {
  const double rate = static_cast<double>(result.tokens) / std::max(1e-9, seconds);
  const auto& validation = log_->record().validation;
  const report::StepStatus status{
      .epoch = static_cast<int64_t>(std::ceil(sampler_->epochs_done())),
      .iter = state_.micro_batches,
      .step = state_.step,
      .total_steps = schedule_.total_steps,
      .loss = result.loss,
      .val_loss = validation.empty() ? std::optional<double>() : validation.back().loss,
      .iter_seconds = seconds / static_cast<double>(std::max<int64_t>(1, result.iterations)),
      .tokens_per_second = rate,
      .share_of_peak = peak_flops_per_second_ > 0 ? rate * flops_ / peak_flops_per_second_ : 0,
      .memory_bytes = engine_.ledger().at_peak().allocated,
      .budget_bytes = budget_};
  log_->step({.step = state_.step,
              .loss = result.loss,
              .seconds = seconds,
              .tokens = result.tokens,
              .padded_tokens = result.padded_tokens,
              .lr = lr,
              .grad_norm = result.grad_norm,
              .raw_tokens = result.raw_tokens},
             status);
  live_->step(status, seconds);
}

void Finetune::run_validation() {
  if (dataset_.validation.empty()) return;
  const Live::Doing doing(*live_, "validating");
  const ValidationResult result =
      validate(*engine_.executor, *validation_batches_, dataset_.validation.count(),
               {.micro_batch_size = recipe_.train.micro_batch_size,
                .max_batches = recipe_.eval.max_iters,
                .compute = engine_.precision.compute,
                .ignore_index = recipe_.data.ignore_index},
               mesh_.get());
  if (result.tokens == 0)
    return warn("no validation: not one of the {} held-out samples has anything to learn from{}",
                dataset_.validation.count(),
                dataset_.validation_pictures.rows ? "; their pictures could not be read" : "");
  log_->validation(state_.step, result.loss, result.tokens);
  log_->print(fmt::format("Validation at step {}: loss {:.4f}, perplexity {:.2f} ({} tokens)",
                          state_.step, result.loss, std::exp(result.loss),
                          with_commas(result.tokens)));
}

void Finetune::save_checkpoint() {
  const Live::Doing doing(*live_, "saving");
  fill_record();
  const auto folder =
      checkpoint::save(recipe_.out_dir, state_, engine_.training_tensors(), log_->unfinished(),
                       &mesh_->world(), dist::show(mesh_->shape()));
  if (world_->rank() > 0) return;
  if (recipe_.train.keep_checkpoints)
    checkpoint::keep_newest(recipe_.out_dir, state_.step, *recipe_.train.keep_checkpoints);
  const int64_t bytes = checkpoint::size_bytes(folder);
  log_->print(fmt::format("Checkpoint {} ({})", folder.string(), format_bytes(bytes)));
  log_->write_unfinished();
  if (std::filesystem::space(folder).available < static_cast<uintmax_t>(bytes))
    warn(
        "the disk of {} has no room for another checkpoint of {}: the run will stop there; make "
        "room, or keep fewer with --train.keep_checkpoints",
        recipe_.out_dir, format_bytes(bytes));
}

void Finetune::finish() {
  engine_.finish_updates();
  const auto& validation = log_->record().validation;
  const bool validated = !validation.empty() && validation.back().step == state_.step;
  if (recipe_.eval.num_samples > 0 || recipe_.lora.enabled) base_->reopen();
  // First of all: what comes after it may fail, and the model is what the run was for.
  const std::filesystem::path final_folder = std::filesystem::path(recipe_.out_dir) / "final";
  live_->state("saving");
  if (recipe_.train.save_model) base_->write_trained(final_folder, engine_);
  if (recipe_.eval.final_validation && !validated) run_validation();
  log_->end_line();
  live_->state("validating");
  show_samples();
  fill_record();
  fill_ranks();
  log_->print("Memory by phase\n\n" + report::memory_table(log_->record().memory.phases));
  log_->print("\nAt the peak\n\n" + report::memory_bars(log_->record().memory.measured.by_category,
                                                        {.budget_bytes = budget_}));
  log_->print(report::summary_block(report::summary_of(log_->record())));
  const std::string model =
      recipe_.train.save_model
          ? fmt::format("{} in {}{}", recipe_.lora.enabled ? "The adapter is" : "The model is",
                        final_folder.string(),
                        base_->tokenizer() == nullptr ? " (without a tokenizer)" : "")
          : "No model was written (train.save_model = false)";
  log_->print(fmt::format("{}, the figures in {}/run.json, a page to look at in {}/report.html",
                          model, recipe_.out_dir, recipe_.out_dir));
}

// Held-out questions or pictures, answered by the trained model and, last of all, by the one it was
// made from: that keeps nobody waiting for the first step, and a resumed run can show it too.
void Finetune::show_samples() {
  if (recipe_.eval.num_samples > 0 && is_synthetic(recipe_.data))
    return log_->print("No sample answers: synthetic samples are ids without a text");
  if (recipe_.eval.num_samples == 0 || dataset_.validation.empty()) return;
  // A decoder's stages would have to tell each other what the encoder has read, at every token.
  if (mesh_->size(dist::Axis::Pipeline) > 1 && base_->model().reads().source)
    return log_->print(
        "No sample answers: stages of an encoder-decoder cannot generate; ask the "
        "written model with snug generate");
  const bool pictures = dataset_.validation_pictures.rows != nullptr;
  const auto answers = [&] {
    const auto answer = pictures ? caption_held_out : answer_samples;
    return answer(engine_, base_->model(), *base_->tokenizer(), dataset_, sample_options());
  };
  try {
    const std::vector<SampleAnswer> after = answers();
    if (!base_->can_load()) return;
    base_->load(engine_);
    engine_.weights_changed();  // while the adapters are still there
    setup::remove_adapters(base_->model());
    log_->print(fmt::format("\nHeld-out {} before and after\n\n{}",
                            pictures ? "pictures, captioned" : "questions, answered",
                            show_answers(answers(), after)));
  } catch (const UserError& error) {
    warn("no sample answers: {}", error.what());  // the model itself is written already
  }
}

void Finetune::fill_record() {
  report::RunRecord& record = log_->record();
  record.startup = startup_.record();
  const at::DeviceType device = host_.device.type();
  const memory::Snapshot peak = memory::ledger_of(device).at_peak();
  report::MemoryPeaks peaks{.peak_allocated = peak.allocated,
                            .peak_reserved = memory::peak_reserved_on(device),
                            .peak_host = peak_resident_bytes()};
  if (engine_.executor) peaks.on_disk = engine_.disk_ledger().allocated();
  for (size_t c = 0; c < memory::kNumCategories; ++c)
    peaks.by_category[memory::name(static_cast<memory::Category>(c))] = peak.by_category[c];
  log_->measured(peaks, seconds_since_process_start());
  const double rate = report::summary_of(record).tokens_per_second;
  record.speed = {
      .tokens_per_second = rate,
      .model_flops_per_second = rate * flops_,
      .share_of_peak = peak_flops_per_second_ > 0 ? rate * flops_ / peak_flops_per_second_ : 0};
}

// Every process's memory into the record that the first one writes.
void Finetune::fill_ranks() {
  if (mesh_->is_single()) return;
  report::RunRecord& record = log_->record();
  const report::MemoryPeaks& peaks = record.memory.measured;
  const nlohmann::json own{record.device.name, record.memory.predicted->peak_allocated,
                           peaks.peak_allocated, peaks.peak_host};
  const std::vector<std::string> all = mesh_->world().gather_texts(own.dump());
  std::string table;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const nlohmann::json of = nlohmann::json::parse(all[rank]);
    record.ranks.push_back({.rank = static_cast<int>(rank),
                            .device = of[0],
                            .predicted_allocated = of[1],
                            .peak_allocated = of[2],
                            .peak_host = of[3]});
    const report::RankRecord& r = record.ranks.back();
    table += fmt::format("  rank {:<4} {:>12} (planned {})\n", r.rank,
                         format_bytes(r.peak_allocated), format_bytes(r.predicted_allocated));
  }
  log_->print(fmt::format("Peak of each process, {}\n\n{}", record.mesh, table));
}

// The same error, with what would fit.
void Finetune::explain(const OutOfMemory& error) {
  report::RunRecord& record = log_->record();
  record.outcome = "oom";
  record.out_of_memory = out_of_memory_record(error);
  fill_record();
  record.out_of_memory->suggestions = suggestion_records(
      base_ ? suggestions(planned()) : std::vector<plan::Suggestion>(), command_);
  record.reason = error.what() + suggestions_text(record.out_of_memory->suggestions);
  log_->write();
  live_->ended("oom", error.what());
  throw OutOfMemory(record.reason);
}

}  // namespace

void finetune(const config::Recipe& recipe, const std::string& command) {
  Finetune(recipe, command).run();
}

}  // namespace snug::train
