// SPDX-License-Identifier: Apache-2.0
#include "train/finetune.h"
#include "engine/steps/objective.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "core/dist/agreement.h"
#include "core/memory/ledger.h"
#include "data/dataset.h"
#include "data/mix.h"
#include "data/rows/label_rows.h"
#include "engine/adapters/adapters.h"
#include "engine/adapters/started_adapter.h"
#include "engine/host.h"
#include "engine/open_data.h"
#include "engine/run.h"
#include "engine/run_length.h"
#include "engine/strategy.h"
#include "engine/techniques/behaviour.h"
#include "plan/out_of_memory.h"
#include "recipe/print.h"
#include "recipe/tables/objectives.h"
#include "report/progress_line.h"
#include "report/tables.h"
#include "train/base_model.h"
#include "train/final_model.h"
#include "train/other_models.h"
#include "train/out_dir/earlier_run.h"
#include "train/out_dir/full_disk.h"
#include "train/records/live.h"
#include "train/records/run_figures.h"
#include "train/records/run_log.h"
#include "train/reference.h"
#include "train/run_plan.h"
#include "train/sample_answers.h"
#include "train/startup.h"
#include "train/training_loop.h"
#include "use/source_records.h"

namespace snug::train {
namespace {

// With model.config, checkpoint_dir only gives the tokenizer's folder.
const std::string& name_of_model(const recipe::Recipe& recipe) {
  return recipe.model.config.empty() ? recipe.checkpoint_dir : recipe.model.config;
}

// One fine-tuning run. run() is the main path: open the device and join the other processes, open
// the model and the data, choose techniques, plan, load weights, train, write the model and the
// reports. Members stand in the order in which they are created.
class Finetune {
 public:
  Finetune(const recipe::Recipe& recipe, const std::string& command)
      : recipe_(recipe), command_(command) {}

  void run();

 private:
  void begin();
  void end_stage(const char* name);
  void check_stop();
  void make_mesh();
  void open_model();
  void open_data();
  std::string words_on_data() const;
  std::string words_on_loss() const;
  void choose_techniques();
  void measure_length();
  PlannedRun planned() const;
  void check_disk();
  bool may_save_last_state() const;
  void load_weights();
  AskedRows asked_rows();
  void ask_other_models();
  void make_reference();
  void open_log();
  void set_earlier_runs_aside();
  void train();
  void finish();
  std::string without_record(const std::string& fault) const;
  void show_samples();
  SampleAnswerOptions sample_options() const;
  std::string of_this_rank() const;
  void tell_the_phases() const;
  void tell_the_end() const;
  void end(const std::string& outcome, const std::string& reason);
  [[noreturn]] void explain(const OutOfMemory& error);

  recipe::Recipe recipe_;
  std::string command_;
  StartupClock startup_;
  engine::Host host_;
  // Destroyed last: the members below may still use its groups.
  std::shared_ptr<dist::World> world_;
  std::shared_ptr<dist::Mesh> mesh_;
  std::unique_ptr<Live> live_;
  std::optional<ResumePoint> resume_;
  bool is_in_others_folder_ = false;  // an earlier run's files are still in out_dir
  bool saves_last_state_ = false;
  std::unique_ptr<RunLog> log_;
  std::optional<RunFigures> figures_;

  std::unique_ptr<BaseModel> base_;
  data::Dataset dataset_;
  std::unique_ptr<data::BatchSource> train_batches_, validation_batches_;
  uint64_t data_fingerprint_ = 0;    // before what a reference adds
  ReferenceNumbers reference_;       // of another model
  std::filesystem::path taught_by_;  // its words, in live/; empty: they are the user's file
  int64_t max_seqlen_ = 0;
  engine::RunLength length_;
  std::optional<engine::Run> run_;
  std::optional<TrainingLoop> loop_;
  std::optional<FinalModel> model_;
};

// Who reads along may go away (snug finetune … | head): log.txt has it all.
void Finetune::run() {
  std::signal(SIGPIPE, SIG_IGN);
  begin();
  std::optional<InterruptGuard> interrupt(std::in_place);
  try {
    open_model();
    end_stage("model");
    open_data();
    end_stage("data");
    live_->state("planning");
    choose_techniques();
    measure_length();
    check_plan(planned(), *log_);
    live_->set_predicted_peak(log_->record().memory.predicted->peak_allocated);
    end_stage("plan");
    ask_other_models();
    live_->state("loading");
    load_weights();
    end_stage("weights");
    make_reference();
    live_->state("training");
    train();
    interrupt.reset();
    finish();
  } catch (const OutOfMemory& error) {
    interrupt.reset();  // to plan what would fit takes a while
    log_->end_line();
    explain(error);
  } catch (const Interrupted& error) {
    log_->end_line();
    end("interrupted", error.what());
    throw;
  } catch (const std::exception& error) {
    log_->end_line();
    end("error", error.what());
    log_->check_folder();  // whatever failed first in a folder that is gone
    throw;
  }
  end("ok", "");
}

// Opens the device, joins the other processes, and looks for a checkpoint to resume from.
void Finetune::begin() {
  startup_.end_stage("program");
  const dist::Position position = dist::position_in_environment();
  live_ = std::make_unique<Live>(recipe_.out_dir, command_, position.rank, position.size);
  live_->set_model(name_of_model(recipe_));
  host_ = engine::prepare_host(recipe_.memory_budget, recipe_.num_threads, recipe_.accelerator,
                               engine::needs_own_stream(recipe_));
  engine::choose_matmul_precision(host_.device, recipe_.matmul_precision);
  live_->set_device(host_.device.type(), engine::device_name(host_.device), host_.budget_bytes);
  startup_.end_stage("device");
  world_ = join_world(recipe_);
  make_mesh();
  if (world_->rank() == 0) clear_up_after_kills(recipe_.out_dir);
  resume_ = find_resume_point(recipe_, mesh_->world());
  log_ = std::make_unique<RunLog>(
      recipe_, command_, resume_ ? std::optional(resume_->run) : std::nullopt, world_->rank() == 0);
  figures_.emplace(*log_, startup_, host_);
  const bool goes_on = resume_ && is_of_run_in(recipe_.out_dir, resume_->folder);
  is_in_others_folder_ = !goes_on && holds_earlier_run(recipe_.out_dir);
  if (!is_in_others_folder_) open_log();
}

// Before training each stage ends by asking whether somebody wants to stop, of any rank.
void Finetune::end_stage(const char* name) {
  startup_.end_stage(name);
  check_stop();
}

void Finetune::check_stop() {
  if (mesh_->world().sum({InterruptGuard::requested() ? 1.0 : 0.0}).front() > 0)
    throw Interrupted("stopped on request before the first step");
}

// From here on the files in out_dir are this run's.
void Finetune::open_log() {
  log_->open_files(resume_ ? std::optional(resume_->run) : std::nullopt);
}

void Finetune::make_mesh() {
  const engine::Strategy strategy =
      engine::strategy_of(recipe_, world_->size(), world_->position().local_size);
  mesh_ = world_->make_mesh(strategy.mesh, host_.device);
}

void Finetune::open_model() {
  base_ = std::make_unique<BaseModel>(recipe_);
  const engine::ParameterCount count = engine::count_parameters(base_->model());
  const std::string& name = name_of_model(recipe_);
  log_->record().model = {.id = name, .parameters = count.total, .trainable = count.trained};
  log_->record().world_size = world_->size();
  log_->record().mesh = recipe::mesh_text(mesh_->shape());
  log_->record().device = {.name = engine::device_name(host_.device),
                           .budget_bytes = host_.budget_bytes};
  const bool could_be_meant = !recipe_.checkpoint_dir.empty() && name != recipe_.checkpoint_dir;
  log_->print(fmt::format(
      "Model    {}{}: {} parameters, {} trained, {}", name,
      could_be_meant ? ", random weights" : "", with_commas(count.total),
      count.trained == count.total ? "all"
                                   : fmt::format("{} ({:.2f} %)", with_commas(count.trained),
                                                 100.0 * static_cast<double>(count.trained) /
                                                     static_cast<double>(count.total)),
      recipe_.precision +
          (recipe_.quantize.empty() ? std::string() : ", frozen weights in " + recipe_.quantize)));
  if (const models::WholeModel* whole = base_->model().whole())
    log_->print("         " + models::words_on(*whole));
  if (const auto* words = base_->tokenizer(); words != nullptr && words->num_new_tokens() > 0)
    log_->print(fmt::format(
        "Tokens   {} new, for which {} in a vocabulary of {} rows", words->num_new_tokens(),
        recipe_.lora.enabled ? "embeddings and head train whole" : "embeddings and head have rows",
        with_commas(base_->model().dimensions().vocabulary)));
  if (!recipe_.lora.adapter.empty())
    log_->print(fmt::format("Adapter  {} trains on: rank {}, alpha {}{}", recipe_.lora.adapter,
                            recipe_.lora.r, recipe_.lora.alpha,
                            resume_ ? "" : "; the optimizer begins anew"));
}

std::string Finetune::words_on_data() const {
  const data::SampleStore &train = dataset_.train, &held_out = dataset_.validation;
  if (!dataset_.sources.empty()) {
    const std::vector<data::SampleRange> ranges = data::ranges_of(dataset_);
    return fmt::format(
        "Data     {} sources: {} training samples in an epoch and {} validation samples, {} "
        "tokens in an epoch, longest {}",
        ranges.size(), with_commas(data::samples_of_epoch(train, ranges)),
        with_commas(held_out.count()),
        with_commas(std::llround(data::tokens_of_epoch(train, ranges))), max_seqlen_);
  }
  return fmt::format(
      "Data     {} training and {} validation {}, {} tokens{}, longest {}, {}",
      with_commas(train.count()), with_commas(held_out.count()),
      train.is_in_blocks() ? fmt::format("blocks of {}", with_commas(train.most_tokens_of_sample()))
                           : "samples",
      with_commas(train.total_tokens()),
      train.shares_prompts() ? " with the prompts of both answers once" : "", max_seqlen_,
      engine::is_synthetic(recipe_.data)
          ? "random samples: for measuring, not for learning"
          : fmt::format("prompt style {}, {}", dataset_.prompt_style, words_on_loss()));
}

std::string Finetune::words_on_loss() const {
  const std::vector<std::string> labels = base_->model().labels();
  if (labels.empty())
    return "loss on " +
           data::words_on_loss(data::masks_prompts(dataset_, recipe_.data.mask_prompt));
  return labels.size() == 1
             ? "a score for each answer"
             : fmt::format("{} labels: {}", labels.size(), data::listed_labels(labels));
}

void Finetune::open_data() {
  check_has_teacher(recipe_);
  if (world_->rank() == 0) engine::tell_of_shorter_samples(recipe_, base_->model());
  recipe_.train.max_seq_length = engine::longest_sample(recipe_, base_->model());
  dataset_ = engine::open_data(recipe_, base_->model(), recipe_.checkpoint_dir, base_->tokenizer());
  const char* validates = recipe_.train.keep_best        ? "train.keep_best"
                          : recipe_.train.early_stopping ? "train.early_stopping"
                                                         : nullptr;
  if (validates != nullptr && dataset_.validation.empty())
    throw UserError(
        "{}: no rows are held out to validate on; hold some out with --data.val_split_fraction "
        "0.05, "
        "or give a file with --data.val_path",
        validates);
  train_batches_ = dataset_.train_batches();
  validation_batches_ = dataset_.validation_batches();
  const data::SampleStore& train = dataset_.train;
  max_seqlen_ = std::max({train.longest(), dataset_.validation.longest(),
                          dataset_.train_others.longest(), dataset_.validation_others.longest()});
  check_sample_options(dataset_, sample_options());
  log_->print(words_on_data());
  std::vector<report::SourceRecord> sources = use::source_records(dataset_);
  if (!sources.empty()) log_->print(report::source_table({.sources = sources}));
  // The record of a run that goes on keeps its own until the data are known to be the same.
  if (!resume_) log_->record().sources = std::move(sources);
}

// --fit: techniques and micro-batch for the memory there is. The first process chooses for all,
// since times that are measured differ.
void Finetune::choose_techniques() {
  if (!recipe_.fit) return;
  if (mesh_->is_single()) {
    recipe_ = fitting_recipe(planned(), *log_);
    log_->set_recipe(recipe_);
    return;
  }
  std::vector<std::string> chosen;
  try {
    chosen = dist::agree(&mesh_->world(), [this] {
      return world_->rank() == 0
                 ? nlohmann::json(recipe::differences(recipe_, fitting_recipe(planned(), *log_)))
                       .dump()
                 : std::string();
    });
  } catch (const OutOfMemory& error) {
    // Ranks exchange the text only, so the error is made anew here.
    throw plan::PlanDoesNotFit(error.what(), {.phase = "plan"});
  }
  recipe::apply_differences(recipe_, nlohmann::json::parse(chosen.front()));
  make_mesh();
  log_->set_recipe(recipe_);
  log_->record().mesh = recipe::mesh_text(mesh_->shape());
}

void Finetune::measure_length() {
  length_ =
      engine::run_length(recipe_, dataset_.train, data::ranges_of(dataset_), mesh_->data().size(),
                         resume_ ? resume_->state.samples_per_epoch : 0);
  log_->record().tokens_per_epoch = engine::tokens_per_epoch(length_, dataset_.train);
  if (resume_ && resume_->state.step >= length_.steps) {
    log_->record().notes.push_back(
        fmt::format("{} is of step {}, and the recipe ends after {}: nothing is left to train; to "
                    "train anew: --resume "
                    "false, or another --out_dir",
                    resume_->folder.string(), resume_->state.step, length_.steps));
    log_->print("Steps    " + log_->record().notes.back());
  }
  const double rate = recipe_.optimizer.lr;
  if (rate != recipe::OptimizerOptions{}.lr && !recipe_.given("optimizer.lr") &&
      rate == recipe::usual_rate(recipe_.objective, recipe_.full))
    log_->print(
        fmt::format("Rate     {}, the default{} {}; "
                    "--optimizer.lr for another",
                    rate,
                    recipe_.objective.name == recipe::ObjectiveName::Sft
                        ? ""
                        : fmt::format(" of {}", recipe_.objective.name),
                    recipe_.full ? "where all weights of a checkpoint train" : "for adapters"));
  if (length_.note.empty()) return;
  log_->record().notes.push_back(length_.note);
  log_->print("Steps    " + length_.note);
}

PlannedRun Finetune::planned() const {
  return {.model = base_->model(),
          .recipe = recipe_,
          .dataset = dataset_,
          .max_seqlen = max_seqlen_,
          .host = host_,
          .mesh = *mesh_};
}

// Runs before weights are read. The file for offloaded optimizer states is already reserved, so the
// free space on its disk counts without it.
void Finetune::check_disk() {
  constexpr const char* kAmple = "ample";
  DiskNeed need{.model_bytes = recipe_.train.save_model ? base_->trained_bytes(run_->engine()) : 0,
                .checkpoint_bytes =
                    checkpoint::bytes_to_save(run_->engine().training_tensors(), &mesh_->world()),
                .num_checkpoints =
                    checkpoints_to_write(recipe_, resume_ ? resume_->state.step : 0, length_.steps),
                .keep = recipe_.train.keep_checkpoints,
                .keeps_best = recipe_.train.keep_best};
  if (resume_ && !is_in_others_folder_)
    need.num_there = checkpoint::count_up_to(recipe_.out_dir, resume_->state.step);
  const std::optional<bool> wanted = recipe_.train.save_last_state;
  if (wanted.value_or(false)) need.num_checkpoints += 1;
  const auto answers = dist::agree(&mesh_->world(), [&]() -> std::string {
    if (world_->rank() > 0) return "";
    if (recipe_.train.save_model && !is_in_others_folder_)
      engine::check_replaceable(final_folder(recipe_));
    std::error_code unknown;
    const auto space = std::filesystem::space(recipe_.out_dir, unknown);
    if (unknown) return "";
    const auto free = static_cast<int64_t>(space.available);
    const std::string warning = check_room(need, free, recipe_.out_dir);
    if (!warning.empty()) log_warning(warning);
    if (has_ample_room(need, free)) return kAmple;
    if (may_save_last_state())
      log_->print(fmt::format(
          "State    the last step's is not kept, since it takes {} and {} of disk are free; to "
          "train further from the end of this run: --train.save_last_state true",
          format_bytes(need.checkpoint_bytes), format_bytes(free)));
    return "";
  });
  saves_last_state_ = wanted.value_or(may_save_last_state() && answers.front() == kAmple);
}

// Unless something says whether. Who wants no checkpoints or no model has no use for it.
bool Finetune::may_save_last_state() const {
  return !recipe_.train.save_last_state && recipe_.train.save_model && recipe_.train.save_interval;
}

void Finetune::load_weights() {
  run_.emplace(base_->model(), recipe_, *train_batches_,
               engine::RunOptions{.device = host_.device, .longest = max_seqlen_, .mesh = mesh_});
  const engine::Engine& engine = run_->engine();
  model_.emplace(FinalModel::Parts{.recipe = recipe_,
                                   .dataset = dataset_,
                                   .base = *base_,
                                   .run = *run_,
                                   .ranks = mesh_->world(),
                                   .log = *log_,
                                   .live = *live_});
  figures_->set_engine(engine);
  check_disk();
  // A training checkpoint holds only the trained parameters.
  if (!resume_ || !base_->trains_whole()) base_->load(engine);
  if (resume_) {
    checkpoint::load_tensors(resume_->folder, engine.training_tensors(), &mesh_->world());
    engine.optimizer->set_num_steps(resume_->state.step);
    log_->print(
        fmt::format("Resume   {} at step {}", resume_->folder.string(), resume_->state.step));
    if (recipe_.train.keep_best && !is_in_others_folder_)
      model_->remember_best(resume_->state.step);
  }
  base_->close();
  set_earlier_runs_aside();
  if (!taught_by_.empty())
    std::filesystem::rename(taught_by_, std::filesystem::path(recipe_.out_dir) / kTeacherFile);
  engine.weights_changed();
  if (resume_)
    checkpoint::load_late_weights(resume_->folder, engine.training_tensors(), &mesh_->world());
}

AskedRows Finetune::asked_rows() {
  return {.recipe = recipe_,
          .dataset = dataset_,
          .train = *train_batches_,
          .validation = *validation_batches_,
          .world = *world_,
          .device = host_.device,
          .tokenizer = base_->tokenizer(),
          .vocabulary = base_->model().dimensions().vocabulary,
          .log = *log_,
          .check_stop = [this] { check_stop(); },
          .resumes = resume_ ? resume_->folder : std::filesystem::path()};
}

// A teacher, or what answers are compared with, before this model takes memory.
void Finetune::ask_other_models() {
  const bool has_teacher = recipe::has_teacher(recipe_.objective.name);
  const bool has_other = !recipe_.objective.reference.empty() && !resume_;
  if (has_teacher || has_other) live_->state("reference");
  if (has_teacher) taught_by_ = learn_from_teacher(asked_rows());
  if (has_other) reference_ = ask_reference(asked_rows());
  if (has_teacher || has_other) {
    memory::empty_cache(host_.device.type());
    end_stage("other models");
  }
  data_fingerprint_ = data::fingerprint(dataset_);
  if (resume_ && resume_->state.data_fingerprint != data_fingerprint_)
    throw UserError(
        "{} was written by a run on other data; resume with the same data options, or start over "
        "with --resume false",
        resume_->folder.string());
  log_->record().sources = use::source_records(dataset_);
}

void Finetune::make_reference() {
  if (!engine::needs_reference(*run_->engine().objective)) return;
  ReferenceFile file{.path = std::filesystem::path(recipe_.out_dir) / kReferenceFile};
  if (resume_) file.earlier = file_of_run(resume_->folder, kReferenceFile);
  live_->state("reference");
  if (file.earlier)
    reference_ = read_reference(*file.earlier, dataset_, *train_batches_, *validation_batches_);
  else if (reference_.empty())
    reference_ = ask_before_training(asked_rows(), *run_);
  keep_reference(std::move(reference_), dataset_, *train_batches_, *validation_batches_, file,
                 *mesh_);
  end_stage("reference");
}

void Finetune::set_earlier_runs_aside() {
  if (world_->rank() > 0) return;
  if (is_in_others_folder_) {
    log_->print(fmt::format("Moved an earlier run's files to {}",
                            set_run_aside(recipe_.out_dir, recipe_.objective.teacher).string()));
    is_in_others_folder_ = false;
    open_log();
    return;
  }
  drop_logs_put_by(recipe_.out_dir);
  if (resume_) {
    if (const auto folder = checkpoint::set_aside(recipe_.out_dir, resume_->state.step))
      log_->print(fmt::format("Moved an earlier run's checkpoints to {}", folder->string()));
    // The run may have ended between writing one and deleting the one before.
    if (recipe_.train.keep_checkpoints && is_of_run_in(recipe_.out_dir, resume_->folder))
      checkpoint::keep_newest(recipe_.out_dir, resume_->state.step,
                              *recipe_.train.keep_checkpoints);
  }
}

void Finetune::train() {
  const data::SampleStore& samples = dataset_.train;
  const double peak = engine::peak_flops_per_second(host_.device, run_->engine().precision.compute);
  figures_->set_flops(
      base_->model().flops_per_token(samples.mean_document(), samples.mean_pictures()),
      host_.device.is_cuda() ? peak * world_->size() : peak);
  std::function<void()> keep_best;
  if (recipe_.train.keep_best) keep_best = [this] { model_->write_best(); };
  checkpoint::TrainingState state = resume_ ? resume_->state : checkpoint::TrainingState{};
  state.data_fingerprint = data_fingerprint_;
  loop_.emplace(TrainingLoop::Parts{.recipe = recipe_,
                                    .dataset = dataset_,
                                    .validation_batches = *validation_batches_,
                                    .run = *run_,
                                    .world = *world_,
                                    .mesh = *mesh_,
                                    .log = *log_,
                                    .figures = *figures_,
                                    .live = *live_,
                                    .startup = startup_,
                                    .saves_last_state = saves_last_state_,
                                    .write_best = keep_best},
                length_, state);
  loop_->run();
}

void Finetune::finish() {
  run_->finish();
  if (recipe_.eval.num_samples > 0) base_->reopen();
  // The last weights may be the best.
  if (recipe_.train.keep_best && recipe_.eval.final_validation) loop_->validate_at_end();
  // Written first: a later step may fail, and the model is what the run is for.
  live_->state("saving");
  model_->finish();
  if (recipe_.eval.final_validation) loop_->validate_at_end();
  log_->end_line();
  live_->state("validating");
  show_samples();
  figures_->fill();
  figures_->fill_ranks(*mesh_);
  tell_the_end();
}

// Held-out questions or pictures, answered by the trained model and then by its base model. The
// base answers last, not first: training starts without delay, and a resumed run can show both.
void Finetune::show_samples() {
  if (!base_->model().labels().empty()) return;  // it writes no answers
  if (recipe_.eval.num_samples > 0 && engine::is_synthetic(recipe_.data))
    return log_->print("No sample answers: synthetic samples are token ids without text");
  if (recipe_.eval.num_samples == 0 || dataset_.validation.empty()) return;
  const bool pictures = dataset_.validation_pictures.are_captions();
  const auto answers = [&] {
    const auto answer = pictures ? caption_held_out : answer_samples;
    return answer(run_->engine(), base_->model(), *base_->tokenizer(), dataset_, sample_options());
  };
  try {
    const std::vector<SampleAnswer> after = answers();
    std::vector<report::SampleRecord>& samples = log_->record().samples;
    for (const SampleAnswer& sample : after)
      samples.push_back({.question = sample.question,
                         .expected = sample.expected,
                         .before = {},
                         .after = sample.answer});
    if (!base_->can_load()) return;
    base_->load(run_->engine());
    run_->engine().weights_changed();  // while the adapters are still there
    if (recipe_.lora.adapter.empty()) engine::remove_adapters(base_->model());
    const std::vector<SampleAnswer> before = answers();
    for (size_t i = 0; i < std::min(samples.size(), before.size()); ++i)
      samples[i].before = before[i].answer;
    const report::BestRecord& best = log_->record().best;
    const bool is_last = model_->written().empty() || !recipe_.train.keep_best ||
                         log_->record().steps.empty() ||
                         best.step == log_->record().steps.back().step;
    log_->print(fmt::format("\nHeld-out {} before and after{}\n\n{}",
                            pictures ? "pictures, captioned" : "questions, answered",
                            is_last ? "" : " all steps, not by the best model",
                            show_answers(before, after)));
  } catch (const UserError& error) {
    warn("no sample answers: {}", error.what());  // the model itself is written already
  } catch (const OutOfMemory& error) {
    if (!mesh_->is_single()) throw;  // the others would wait for this process
    warn(
        "no sample answers, for which no plan has memory: {}; a smaller --eval.max_new_tokens "
        "takes less, --eval.num_samples 0 leaves them out",
        error.what());
  }
}

SampleAnswerOptions Finetune::sample_options() const {
  return {.count = recipe_.eval.num_samples,
          .max_new_tokens = recipe_.eval.max_new_tokens.value_or(100),
          .max_seq_length = recipe_.train.max_seq_length.value_or(0),
          .first = recipe_.eval.evaluate_example,
          .seed = recipe_.seed};
}

std::string Finetune::of_this_rank() const {
  return world_->size() > 1 ? fmt::format(", rank {}", world_->rank()) : "";
}

void Finetune::tell_the_phases() const {
  const report::RunRecord& record = log_->record();
  const std::vector<report::PhaseRecord> phases = report::shown_phases(record);
  if (phases.empty()) return;
  log_->print(fmt::format("Memory by phase{}\n\n{}", of_this_rank(), report::memory_table(phases)));
}

void Finetune::tell_the_end() const {
  const report::RunRecord& record = log_->record();
  tell_the_phases();
  log_->print(fmt::format("\nAt the peak{}\n\n{}", of_this_rank(),
                          report::memory_bars(record.memory.measured.by_category,
                                              {.budget_bytes = host_.budget_bytes})));
  log_->print(report::summary_block(report::summary_of(record)));
  if (!record.sources.empty()) log_->print(report::source_table(record));
  const std::string model =
      recipe_.train.save_model
          ? fmt::format("{} in {}{}", recipe_.lora.enabled ? "The adapter is" : "The model is",
                        model_->written().string(),
                        base_->tokenizer() == nullptr ? " (without a tokenizer)" : "")
          : "No model was written (train.save_model = false)";
  log_->print(fmt::format("{}, the figures in {}/run.json, a report in {}/report.html", model,
                          recipe_.out_dir, recipe_.out_dir));
}

// Writes run.json for every outcome.
void Finetune::end(const std::string& outcome, const std::string& reason) {
  log_->record().outcome = outcome;
  log_->record().reason = reason;
  figures_->fill();
  const std::string fault = log_->write();
  live_->ended(outcome, reason);
  if (!fault.empty() && outcome == "ok") {
    const std::string text = without_record(fault);
    log_->log_end("error", text);
    throw UserError("{}", text);
  }
  if (!fault.empty()) log_warning("the run's record could not be written: " + fault);
  log_->log_end(outcome, reason);
}

// The model is whole, but who asks run.json would hear that the run is unfinished.
std::string Finetune::without_record(const std::string& fault) const {
  const std::string model =
      !model_ || model_->written().empty()
          ? ""
          : fmt::format(" The trained model is whole in {}.", model_->written().string());
  const std::string remedy =
      last_checkpoint(recipe_.out_dir, log_->record())
          ? "once that is mended, the same command with --resume auto writes it "
            "without another step"
          : "its figures are those printed above, its steps those in metrics.csv";
  return fmt::format("the run is done, but its record could not be written: {}; {}.{}", fault,
                     remedy, model);
}

// Throws the same error again, with changes that would fit.
void Finetune::explain(const OutOfMemory& error) {
  report::RunRecord& record = log_->record();
  record.out_of_memory = plan::out_of_memory_record(error);
  figures_->fill();  // planning, below, is not the run's
  const auto* refused = dynamic_cast<const memory::RefusedAllocation*>(&error);
  const std::vector<plan::Suggestion> found =
      base_ ? suggestions(planned(), refused ? refused->refusal().available() : 0)
            : std::vector<plan::Suggestion>();
  record.out_of_memory->suggestions = plan::suggestion_records(found, command_);
  record.outcome = "oom";
  record.reason = error.what() + plan::suggestions_text(found, command_);
  if (const std::string fault = log_->write(); !fault.empty())
    log_warning("the run's record could not be written: " + fault);
  tell_the_phases();
  live_->ended("oom", error.what());
  log_->log_end("oom", record.reason);
  throw OutOfMemory(record.reason);
}

}  // namespace

void finetune(const recipe::Recipe& given, const std::string& command) {
  recipe::Recipe recipe = given;
  engine::resolve_adapter(recipe);
  if (recipe.model.config.empty()) engine::resolve_quantize(recipe, recipe.checkpoint_dir);
  if (const std::string done = words_on_finished_run(recipe); !done.empty()) {
    if (dist::position_in_environment().rank != 0) return;
    clear_up_finished(recipe.out_dir);
    write_missing_report(recipe.out_dir);
    std::fprintf(stderr, "%s\n", done.c_str());
    return;
  }
  Finetune(recipe, command).run();
}

}  // namespace snug::train
