// SPDX-License-Identifier: Apache-2.0
#include "snug/engine.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/memory/guards.h"
#include "data/micro_batch.h"
#include "data/sample_store.h"
#include "engine/engine.h"
#include "engine/host.h"
#include "engine/steps/phases.h"
#include "engine/steps/stepper.h"
#include "engine/steps/validation.h"
#include "models/family.h"
#include "recipe/check.h"
#include "recipe/parse.h"
#include "train/base_model.h"

namespace snug {
namespace {

// Hands every hook on to a policy that the caller keeps.
class Borrowed final : public exec::Policy {
 public:
  explicit Borrowed(std::shared_ptr<exec::Policy> policy) : policy_(std::move(policy)) {}
  void before_forward(exec::UnitRun& run) override { policy_->before_forward(run); }
  void after_forward(exec::UnitRun& run) override { policy_->after_forward(run); }
  void before_backward(exec::UnitRun& run) override { policy_->before_backward(run); }
  void after_backward(exec::UnitRun& run) override { policy_->after_backward(run); }
  void after_micro_batch() override { policy_->after_micro_batch(); }
  void abandon() override { policy_->abandon(); }

 private:
  std::shared_ptr<exec::Policy> policy_;
};

data::SampleStore store_of(const at::Tensor& input_ids, const at::Tensor& labels,
                           int64_t ignore_index, int64_t longest) {
  if (input_ids.dim() != 2 || input_ids.sizes() != labels.sizes())
    throw UserError("input_ids and labels must be (samples, tokens) and of the same shape");
  if (input_ids.is_floating_point() || labels.is_floating_point())
    throw UserError("input_ids and labels must be integers");
  if (input_ids.size(1) > longest)
    throw UserError("samples of {} tokens, but the trainer was made for {}; raise longest",
                    input_ids.size(1), longest);
  const at::Tensor ids = input_ids.to(at::kCPU, at::kInt).contiguous();
  const at::Tensor targets = labels.to(at::kCPU, at::kInt).contiguous();
  const auto ignored = static_cast<int32_t>(ignore_index);
  const int64_t length = ids.size(1);
  const auto sample_at = [&](int64_t i) {
    const auto* const id = ids.const_data_ptr<int32_t>() + i * length;
    const auto* const own = targets.const_data_ptr<int32_t>() + i * length;
    data::Sample sample;
    sample.ids.assign(id, id + length);
    sample.labels.assign(own, own + length);
    for (int64_t t = 0; t < length; ++t) {
      int32_t& label = sample.labels[static_cast<size_t>(t)];
      if (label == -100) label = ignored;
      if (label != ignored && label != sample.ids[static_cast<size_t>(t)])
        throw UserError(
            "sample {}, token {}: label {}, but a label is its token's own id ({}) or -100", i, t,
            label, sample.ids[static_cast<size_t>(t)]);
    }
    return sample;
  };
  return data::SampleStore::build(ids.size(0), ignored, sample_at, 1);
}

// The samples of the current call.
class Rows final : public data::BatchSource {
 public:
  explicit Rows(const data::MicroBatchOptions& options) : options_(options) {}
  void set(data::SampleStore store) { store_ = std::move(store); }
  int64_t count() const { return store_.count(); }
  int64_t total_tokens() const { return store_.total_tokens(); }
  data::MicroBatch make(std::span<const int64_t> indices) override {
    return data::make_micro_batch(store_, indices, options_);
  }

 private:
  data::SampleStore store_;
  data::MicroBatchOptions options_;
};

data::MicroBatchOptions batch_options(const recipe::Recipe& recipe, const models::Model& model) {
  return {.packing = recipe.data.packing,
          .ignore_index = static_cast<int32_t>(recipe.data.ignore_index),
          .reading = model.reads()};
}

void check_reads_text(const models::Model& model) {
  if (model.reads().source || model.reads().image_size > 0)
    throw UserError(
        "the library trains decoders on tokens; use the program for pictures and "
        "encoders");
}

}  // namespace

recipe::Recipe read_recipe(const std::vector<std::string>& options, bool full) {
  std::vector<std::string> words{full ? "finetune_full" : "finetune"};
  words.insert(words.end(), options.begin(), options.end());
  recipe::ParsedCommand parsed = recipe::parse_command_line(words);
  // Samples are given as tensors: no file is read, and random weights need no tokenizer.
  parsed.recipe.data.class_path = "Synthetic";
  recipe::check_recipe(parsed.command, parsed.recipe);
  return parsed.recipe;
}

plan::Prediction predict(const recipe::Recipe& recipe, int64_t tokens) {
  engine::prepare_host(recipe.memory_budget, recipe.num_threads, recipe.accelerator);
  const auto model = recipe.model.config.empty()
                         ? std::move(models::open_checkpoint(recipe.checkpoint_dir).model)
                         : models::model_from_config(recipe.model.config);
  check_reads_text(*model);
  data::Sample sample;
  sample.ids.assign(static_cast<size_t>(tokens), 0);
  sample.labels = sample.ids;
  const std::vector<data::Sample> samples(static_cast<size_t>(recipe.train.micro_batch_size),
                                          sample);
  return plan::predict(*model, recipe,
                       data::make_micro_batch(samples, batch_options(recipe, *model)), tokens);
}

struct Trainer::Parts {
  Parts(const recipe::Recipe& wanted, const TrainerOptions& options)
      : recipe(wanted),
        longest(options.longest),
        host(engine::prepare_host(recipe.memory_budget, recipe.num_threads, recipe.accelerator)),
        others(memory::ledger_of(host.device.type()).allocated()),
        base(recipe),
        rows(batch_options(recipe, base.model())) {
    check_reads_text(base.model());
    engine::choose_matmul_precision(host.device, recipe.matmul_precision);
    engine = engine::make_engine(base.model(), recipe, host.device, longest);
    base.load(engine);
    engine.weights_changed();
    if (options.objective != nullptr) engine.objective = engine.validated = options.objective;
    for (const auto& policy : options.policies)
      engine.executor->add_policy(std::make_unique<Borrowed>(policy));
    own_bytes = engine.ledger().allocated() - others;
    phases.emplace(engine, records);
    stepper.emplace(engine, recipe, rows, *phases);
  }

  recipe::Recipe recipe;
  int64_t longest;
  engine::Host host;
  int64_t others = 0, own_bytes = 0;  // live on the device between steps: the caller's, and ours
  train::BaseModel base;
  engine::Engine engine;
  Rows rows;
  std::vector<report::PhaseRecord> records;
  std::optional<engine::PhaseRecorder> phases;
  std::optional<engine::Stepper> stepper;
};

Trainer::Trainer(const recipe::Recipe& recipe, const TrainerOptions& options)
    : parts_(std::make_unique<Parts>(recipe, options)) {}

Trainer::~Trainer() = default;

Step Trainer::step(const at::Tensor& input_ids, const at::Tensor& labels,
                   std::optional<double> lr) {
  Parts& p = *parts_;
  p.rows.set(store_of(input_ids, labels, p.recipe.data.ignore_index, p.longest));
  engine::SampleIndices micro_batches;
  for (int64_t begin = 0; begin < p.rows.count(); begin += p.recipe.train.micro_batch_size) {
    const int64_t end = std::min(begin + p.recipe.train.micro_batch_size, p.rows.count());
    micro_batches.emplace_back(static_cast<size_t>(end - begin));
    std::iota(micro_batches.back().begin(), micro_batches.back().end(), begin);
  }
  memory::Ledger& ledger = p.engine.ledger();
  const int64_t live = ledger.allocated();
  p.others = live - p.own_bytes;
  ledger.reset_peak();
  const engine::StepResult result =
      p.stepper->step(micro_batches, lr.value_or(p.recipe.optimizer.lr));
  p.own_bytes += ledger.allocated() - live;
  return {.loss = result.loss,
          .grad_norm = result.grad_norm,
          .tokens = result.tokens,
          .loss_tokens = result.loss_tokens,
          .peak_bytes = ledger.at_peak().allocated - p.others};
}

double Trainer::evaluate(const at::Tensor& input_ids, const at::Tensor& labels) {
  Parts& p = *parts_;
  p.rows.set(store_of(input_ids, labels, p.recipe.data.ignore_index, p.longest));
  return engine::validate(*p.engine.executor, p.rows, p.rows.count(),
                          {.micro_batch_size = p.recipe.train.micro_batch_size,
                           .compute = p.engine.precision.compute,
                           .ignore_index = p.recipe.data.ignore_index,
                           .objective = p.engine.validated.get()})
      .loss;
}

const memory::Ledger& Trainer::ledger() const { return parts_->engine.ledger(); }

std::vector<nn::Unit*> Trainer::units() const { return parts_->engine.units; }

std::vector<nn::Parameter*> Trainer::parameters() const {
  return parts_->engine.executor->parameters();
}

void Trainer::save(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder))
    throw UserError("{} exists already; choose another folder", folder.string());
  parts_->engine.finish_updates();
  parts_->base.write_trained(folder, parts_->engine);
}

}  // namespace snug
