// SPDX-License-Identifier: Apache-2.0
#include "snug/engine.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/memory/budget_guard.h"
#include "core/memory/guards.h"
#include "data/micro_batch.h"
#include "data/sample_store.h"
#include "engine/host.h"
#include "engine/run.h"
#include "engine/strategy.h"
#include "engine/techniques/behaviour.h"
#include "models/family.h"
#include "recipe/check.h"
#include "recipe/parse.h"
#include "train/base_model.h"

namespace snug {
namespace {

bool holds_integers(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_meta() && at::isIntegralType(tensor.scalar_type(), false);
}

struct Limits {
  int64_t longest = 0, vocabulary = 0;
  int32_t ignore_index = 0;
};

data::SampleStore store_of(const at::Tensor& input_ids, const at::Tensor& labels,
                           const Limits& limits) {
  if (!holds_integers(input_ids) || !holds_integers(labels))
    throw UserError("input_ids and labels must be integers in memory");
  if (input_ids.dim() != 2 || input_ids.numel() == 0 || input_ids.sizes() != labels.sizes())
    throw UserError(
        "input_ids and labels must be (samples, tokens), at least one of each, and of the same "
        "shape");
  if (input_ids.size(1) > limits.longest)
    throw UserError(
        "samples of {} tokens, but the trainer takes {}: its option longest, or what the model "
        "takes",
        input_ids.size(1), limits.longest);
  const at::Tensor ids = input_ids.to(at::kCPU, at::kLong).contiguous();
  const at::Tensor targets = labels.to(at::kCPU, at::kLong).contiguous();
  const int64_t length = ids.size(1);
  const auto sample_at = [&](int64_t i) {
    const auto* const id = ids.const_data_ptr<int64_t>() + i * length;
    const auto* const label = targets.const_data_ptr<int64_t>() + i * length;
    data::Sample sample;
    for (int64_t t = 0; t < length; ++t) {
      if (id[t] < 0 || id[t] >= limits.vocabulary)
        throw UserError("sample {}, token {}: id {}, but the model's vocabulary has {}", i, t,
                        id[t], limits.vocabulary);
      const bool is_ignored = label[t] == -100 || label[t] == limits.ignore_index;
      if (!is_ignored && label[t] != id[t])
        throw UserError(
            "sample {}, token {}: label {}, but a label is its token's own id ({}) or -100", i, t,
            label[t], id[t]);
      sample.ids.push_back(static_cast<int32_t>(id[t]));
      sample.labels.push_back(is_ignored ? limits.ignore_index : sample.ids.back());
    }
    return sample;
  };
  return data::SampleStore::build(ids.size(0), limits.ignore_index, sample_at, 1);
}

// The numbers of a column, given as `numbers` or, for a prediction, not at all.
data::ColumnOfNumbers column_of(const nn::Column& asked, const at::Tensor& numbers,
                                const std::vector<int64_t>& documents_and_tokens) {
  std::vector<int64_t> sizes = documents_and_tokens;
  if (asked.per == nn::Column::Per::Document) sizes.pop_back();
  if (asked.width > 1) sizes.push_back(asked.width);
  if (numbers.defined() && (numbers.is_meta() || numbers.sizes() != sizes))
    throw UserError("column {}: [{}] numbers in memory, but the objective wants [{}]", asked.name,
                    fmt::join(numbers.sizes(), ", "), fmt::join(sizes, ", "));
  data::ColumnOfNumbers column{.is_per_target = asked.per == nn::Column::Per::Target,
                               .width = asked.width,
                               .fill = static_cast<float>(asked.fill)};
  const at::Tensor values = numbers.defined() ? numbers.to(at::kCPU, at::kFloat).contiguous()
                                              : at::zeros(sizes, at::kFloat);
  const auto* const first = values.const_data_ptr<float>();
  column.values.assign(first, first + values.numel());
  return column;
}

// The samples of the current call.
class Rows final : public data::BatchSource {
 public:
  Rows(const data::MicroBatchOptions& options, nn::BatchSpec spec)
      : options_(options), spec_(std::move(spec)) {}
  void set(data::SampleStore store, const Columns* columns, int64_t tokens) {
    if (store.count() % spec_.documents_per_sample != 0)
      throw UserError("{} rows: a sample of this objective has {}", store.count(),
                      spec_.documents_per_sample);
    std::vector<data::ColumnOfNumbers> numbers;
    for (const nn::Column& asked : spec_.columns) {
      const auto given = columns == nullptr ? Columns::const_iterator() : columns->find(asked.name);
      if (columns != nullptr && given == columns->end())
        throw UserError("the objective wants a column {}", asked.name);
      numbers.push_back(column_of(asked, columns == nullptr ? at::Tensor() : given->second,
                                  {store.count(), tokens}));
    }
    if (columns != nullptr && columns->size() > numbers.size())
      throw UserError("{} columns, but the objective wants {}", columns->size(), numbers.size());
    store.set_columns(std::move(numbers));
    store.group(spec_.documents_per_sample);
    store_ = std::move(store);
  }
  int64_t count() const { return store_.count(); }
  int64_t total_tokens() const { return store_.total_tokens(); }
  std::shared_ptr<const data::MicroBatch> make(std::span<const int64_t> indices) override {
    return std::make_shared<const data::MicroBatch>(
        data::make_micro_batch(store_, indices, options_));
  }

 private:
  data::SampleStore store_;
  data::MicroBatchOptions options_;
  nn::BatchSpec spec_;
};

nn::BatchSpec spec_of(const TrainerOptions& options) {
  if (options.objective == nullptr) return {};
  nn::BatchSpec spec = options.objective->batch();
  nn::check(spec);
  return spec;
}

data::MicroBatchOptions batch_options(const recipe::Recipe& recipe, const models::Model& model) {
  // A prediction knows no labels.
  return {.packing = recipe.data.packing,
          .picks_few_targets = false,
          .ignore_index = static_cast<int32_t>(recipe.data.ignore_index),
          .reading = model.reads()};
}

engine::Extensions extensions_of(const TrainerOptions& options) {
  return {options.objective, options.policies, options.optimizer};
}

void check_use(const models::Model& model, const recipe::Recipe& recipe) {
  if (model.reads().source || model.reads().image_size > 0)
    throw UserError(
        "the library trains decoders on tokens; use the program for pictures and "
        "encoders");
  if (engine::named_ranks(recipe) > 1)
    throw UserError("the library trains in one process on one device; use the program for {}",
                    engine::named_ranks(recipe));
  if (recipe.fit)
    throw UserError(
        "fit: the library takes a recipe as it is; snug plan --fit finds one that fits");
}

engine::Host prepare_without_budget(const recipe::Recipe& recipe) {
  const engine::Host host =
      engine::prepare_host(recipe.memory_budget, recipe.num_threads, recipe.accelerator,
                           engine::needs_own_stream(recipe));
  memory::ledger_of(host.device.type()).set_budget(0);
  return host;
}

}  // namespace

recipe::Recipe read_recipe(const std::vector<std::string>& options, bool full) {
  std::vector<std::string> words{full ? "finetune_full" : "finetune"};
  words.insert(words.end(), options.begin(), options.end());
  recipe::ParsedCommand parsed = recipe::parse_command_line(words);
  // Samples are given as tensors: no file is read, and random weights need no tokenizer.
  parsed.recipe.data.class_path = "Synthetic";
  recipe::check_recipe(parsed.command, parsed.recipe);
  parsed.recipe.out_dir.clear();  // Trainer::save() is told where
  return parsed.recipe;
}

plan::Prediction predict(const recipe::Recipe& recipe, int64_t tokens,
                         const TrainerOptions& options) {
  prepare_without_budget(recipe);
  const auto model = recipe.model.config.empty()
                         ? std::move(models::open_checkpoint(recipe.checkpoint_dir).model)
                         : models::model_from_config(recipe.model.config);
  check_use(*model, recipe);
  const int64_t most = model->dimensions().max_positions;
  if (tokens < 2 || tokens > most)
    throw UserError(
        "samples of {} tokens: give from 2 tokens (the first is not learned) to {} (the model's "
        "most)",
        tokens, most);
  const nn::BatchSpec spec = spec_of(options);
  Rows rows(batch_options(recipe, *model), spec);
  const auto sample_at = [&](int64_t) {
    const std::vector<int32_t> ids(static_cast<size_t>(tokens), 0);
    return data::Sample{.ids = ids, .labels = ids};
  };
  rows.set(data::SampleStore::build(recipe.train.micro_batch_size * spec.documents_per_sample,
                                    static_cast<int32_t>(recipe.data.ignore_index), sample_at, 1),
           nullptr, tokens);
  std::vector<int64_t> all(static_cast<size_t>(recipe.train.micro_batch_size));
  std::iota(all.begin(), all.end(), 0);
  return plan::predict(*model, recipe, *rows.make(all), tokens,
                       {.extensions = extensions_of(options)});
}

struct Trainer::Parts {
  Parts(const recipe::Recipe& wanted, const TrainerOptions& options)
      : recipe(wanted),
        host(prepare_without_budget(recipe)),
        others(memory::ledger_of(host.device.type()).allocated()),
        base(recipe),
        rows(batch_options(recipe, base.model()), spec_of(options)) {
    const memory::BudgetGuard held = hold_budget();
    check_use(base.model(), recipe);
    longest = std::min(options.longest, base.model().dimensions().max_positions);
    if (longest < 1) throw UserError("longest = {}: give 1 token or more", options.longest);
    engine::choose_matmul_precision(host.device, recipe.matmul_precision);
    run.emplace(
        base.model(), recipe, rows,
        engine::RunOptions{
            .device = host.device, .longest = longest, .extensions = extensions_of(options)});
    base.load(run->engine());
    run->engine().weights_changed();
    own_bytes = run->engine().ledger().allocated() - others;
  }

  // Holds the budget of snug's own tensors, as peaks and predictions count them, while snug's own
  // code runs.
  memory::BudgetGuard hold_budget() const {
    const int64_t bytes = host.budget_bytes;
    return {memory::ledger_of(host.device.type()),
            bytes == 0 ? 0 : bytes + others - host.library_bytes};
  }

  void set_rows(const at::Tensor& input_ids, const at::Tensor& labels, const Columns& columns) {
    data::SampleStore store = checked(input_ids, labels);
    rows.set(std::move(store), &columns, input_ids.size(1));
  }

  data::SampleStore checked(const at::Tensor& input_ids, const at::Tensor& labels) const {
    if (c10::InferenceMode::is_enabled())
      throw UserError("c10::InferenceMode forbids gradients; end it around snug's calls");
    return store_of(input_ids, labels,
                    {.longest = longest,
                     .vocabulary = base.model().dimensions().vocabulary,
                     .ignore_index = static_cast<int32_t>(recipe.data.ignore_index)});
  }

  recipe::Recipe recipe;
  int64_t longest = 0;
  engine::Host host;
  int64_t others = 0, own_bytes = 0;  // live on the device between steps: the caller's, and ours
  train::BaseModel base;
  Rows rows;
  std::optional<engine::Run> run;
};

Trainer::Trainer(const recipe::Recipe& recipe, const TrainerOptions& options)
    : parts_(std::make_unique<Parts>(recipe, options)) {}

Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

Step Trainer::step(const at::Tensor& input_ids, const at::Tensor& labels, std::optional<double> lr,
                   const Columns& columns) {
  Parts& p = *parts_;
  p.set_rows(input_ids, labels, columns);
  engine::SampleIndices micro_batches;
  for (int64_t begin = 0; begin < p.rows.count(); begin += p.recipe.train.micro_batch_size) {
    const int64_t end = std::min(begin + p.recipe.train.micro_batch_size, p.rows.count());
    micro_batches.emplace_back(static_cast<size_t>(end - begin));
    std::iota(micro_batches.back().begin(), micro_batches.back().end(), begin);
  }
  memory::Ledger& ledger = p.run->engine().ledger();
  const int64_t live = ledger.allocated();
  p.others = live - p.own_bytes;
  const memory::BudgetGuard held = p.hold_budget();
  ledger.reset_peak();
  const engine::StepResult result = p.run->step(micro_batches, lr.value_or(p.recipe.optimizer.lr));
  p.own_bytes += ledger.allocated() - live;
  return {.loss = result.loss,
          .grad_norm = result.grad_norm,
          .tokens = result.tokens,
          .loss_tokens = result.loss_tokens,
          .updated = result.updated,
          .peak_bytes = ledger.at_peak().allocated - p.others};
}

double Trainer::evaluate(const at::Tensor& input_ids, const at::Tensor& labels,
                         const Columns& columns) {
  Parts& p = *parts_;
  p.set_rows(input_ids, labels, columns);
  p.others = p.run->engine().ledger().allocated() - p.own_bytes;
  const memory::BudgetGuard held = p.hold_budget();
  return p.run->evaluate(p.rows, p.rows.count()).loss;
}

at::Tensor Trainer::log_probs(const at::Tensor& input_ids, const at::Tensor& labels) {
  Parts& p = *parts_;
  Rows documents(batch_options(p.recipe, p.base.model()), {});
  documents.set(p.checked(input_ids, labels), nullptr, 0);
  p.others = p.run->engine().ledger().allocated() - p.own_bytes;
  const memory::BudgetGuard held = p.hold_budget();
  const std::vector<double> sums = p.run->log_probs(documents, documents.count());
  at::Tensor result = at::empty({std::ssize(sums)}, at::kFloat);
  std::ranges::copy(sums, result.mutable_data_ptr<float>());
  return result;
}

const memory::Ledger& Trainer::ledger() const { return parts_->run->engine().ledger(); }

std::vector<nn::Unit*> Trainer::units() const { return parts_->run->engine().units; }

std::vector<nn::Parameter*> Trainer::parameters() const {
  return parts_->run->engine().executor->parameters();
}

void Trainer::save(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder))
    throw UserError("{} exists already; choose another folder", folder.string());
  parts_->run->finish();
  parts_->base.write_trained(folder, parts_->run->engine());
}

}  // namespace snug
