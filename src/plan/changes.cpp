// SPDX-License-Identifier: Apache-2.0
#include "plan/changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/strategy.h"
#include "recipe/batches.h"
#include "recipe/options/rows.h"
#include "recipe/tables/optimizers.h"

namespace snug::plan {
namespace {

using recipe::Precision;
using recipe::Strategy;
using recipe::TimeCost;

bool sums_micro_batches(const recipe::Recipe& r) { return recipe::micro_batches_of_step(r) > 1; }

bool shard_more(recipe::Recipe& r) {
  const bool is_sharded = r.strategy == Strategy::Auto || r.strategy == Strategy::Fsdp ||
                          r.strategy == Strategy::Hybrid;
  const bool changes = engine::named_ranks(r) > 1 && r.mesh.empty() && !is_sharded &&
                       !recipe::needs_whole_matrices(r.optimizer);
  if (changes) r.strategy = Strategy::Fsdp;
  return changes;
}
bool use_bf16(recipe::Recipe& r) {
  const bool changes = !r.has_16_bit_weights();
  r.precision = Precision::BFloat16;
  turn_off_impossible(r);
  return changes;
}
bool use_8bit(recipe::Recipe& r) {
  const auto smaller = recipe::optimizer_traits(r.optimizer.name.value()).with_smaller_states;
  if (smaller) r.optimizer.name = *smaller;
  return smaller.has_value();
}
bool use_sgd(recipe::Recipe& r) {
  const bool changes = recipe::has_states(r.optimizer);
  r.optimizer.name = recipe::OptimizerName::Sgd;
  r.optimizer.momentum = 0;
  r.optimizer.nesterov = false;
  return changes;
}

bool train_adapters(recipe::Recipe& r) {
  // Parts of the language model that train whole have no adapters beside them.
  const bool changes = !r.lora.enabled && r.model.train_parts == "all";
  if (changes) {
    r.full = false;
    r.lora.enabled = true;
    r.lora.r = 8;
  }
  return changes;
}
bool quantize(recipe::Recipe& r) {
  const bool changes = r.quantize.empty() && (r.lora.enabled || train_adapters(r));
  if (changes) r.quantize = recipe::Quantize::Nf4;
  return changes;
}

std::vector<Change> all_changes() {
  std::vector<Change> all = {
      {.options = "--strategy fsdp",
       .cost_words = "weights are gathered from the other devices, twice per micro-batch",
       .change = shard_more,
       .cost = TimeCost::Communication}};
  for (const recipe::Technique& technique : recipe::techniques())
    if (!technique.cost_words_of_off.empty())
      all.push_back({.off = &technique, .cost_words = technique.cost_words_of_off});
  for (const recipe::Technique& technique : recipe::techniques())
    if (!technique.cost_words.empty())
      all.push_back({.on = &technique, .cost_words = technique.cost_words, .cost = technique.cost});
  std::ranges::stable_sort(all, {}, &Change::cost);
  const auto less_exact = [&](std::string_view options, std::string_view cost_words,
                              bool (*change)(recipe::Recipe&), bool names_optimizer = false) {
    all.push_back({.options = options,
                   .cost_words = cost_words,
                   .change = change,
                   .same_training = false,
                   .names_optimizer = names_optimizer});
  };
  less_exact("--optimizer adamw_8bit", "1-byte optimizer states: rounded moments", use_8bit, true);
  less_exact("--precision bf16-true", "2-byte weights and states: less exact updates", use_bf16);
  less_exact("--lora_r 8", "trains adapters beside frozen weights (LoRA)", train_adapters);
  less_exact("--quantize bnb.nf4", "trains adapters beside frozen 4-bit weights (QLoRA)", quantize);
  less_exact("--optimizer SGD",
             "no optimizer states: needs another learning rate and learns more slowly", use_sgd,
             true);
  return all;
}

// The options of techniques that are on only in `after`, and of those that take memory and are on
// only in `before`.
std::vector<std::string> techniques_turned(const recipe::Recipe& before, recipe::Recipe after) {
  std::vector<std::string> options;
  for (const recipe::Technique& technique : recipe::techniques())
    if (is_on(technique, after) != is_on(technique, before) &&
        (is_on(technique, after) || technique.takes_memory())) {
      const recipe::Row row = technique.option(after);
      const bool is_plain = is_flag(row) && is_on(technique, after);
      options.push_back("--" + row.key + (is_plain ? "" : " " + plain_text(row)));
    }
  return options;
}

// Choosing an optimizer loads its defaults, so arguments that were given for the other one are
// repeated, or set to what they would be without if the new one does not take them.
std::string optimizer_arguments(const recipe::Recipe& before, recipe::Recipe after) {
  std::string text;
  if (after.optimizer == before.optimizer) return text;
  recipe::Recipe plain = after;
  plain.optimizer = recipe::optimizer_defaults(after.optimizer.name);
  const std::vector<recipe::Row> rows = recipe::recipe_rows(after),
                                 plain_rows = recipe::recipe_rows(plain);
  for (const std::string& key : before.given_keys) {
    static constexpr std::string_view kGroup = "optimizer.";
    if (!key.starts_with(kGroup) || key == "optimizer.class_path") continue;
    const bool taken =
        recipe::optimizer_takes(after.optimizer.name, std::string_view(key).substr(kGroup.size()));
    std::string value = recipe::plain_text(*recipe::find_row(taken ? rows : plain_rows, key));
    std::erase(value, ' ');
    text += fmt::format(" --{} {}", key, value);
  }
  return text;
}

// The options that make this change, each with its value.
std::vector<std::string> options_of(const Change& change, const recipe::Recipe& before,
                                    const recipe::Recipe& after) {
  std::vector<std::string> options = techniques_turned(before, after);
  if (after.lora.enabled && !before.lora.enabled) {
    if (before.given("full")) options.emplace_back("--full false");
    if (!after.quantize.empty()) options.emplace_back("--lora_r 8");
  }
  if (!change.options.empty())
    options.push_back(std::string(change.options) + optimizer_arguments(before, after));
  return options;
}

}  // namespace

const std::vector<Change>& changes() {
  static const std::vector<Change> kChanges = all_changes();
  return kChanges;
}

Changed changed(const recipe::Recipe& recipe, const Choice& choice) {
  Changed result{.recipe = recipe, .options = {}};
  recipe::Recipe& r = result.recipe;
  const bool is_smaller = choice.micro_batch_size != recipe.train.micro_batch_size;
  r.train.micro_batch_size = choice.micro_batch_size;
  for (const recipe::Technique& technique : recipe::techniques()) {
    if (!is_smaller || !technique.for_one_micro_batch || !sums_micro_batches(r)) continue;
    const recipe::Row option = technique.option(r);
    const bool is_auto = option.automatic != nullptr && *option.automatic;
    if (!turn_off(technique, r)) continue;
    if (is_auto)
      *option.automatic = true;  // which means off now
    else
      result.options.push_back(fmt::format("--{} {}", technique.key, technique.values.front()));
  }
  for (const Change* change : choice.changes) {
    recipe::Recipe after = r;
    if (!change->apply(after)) continue;
    std::ranges::copy(options_of(*change, r, after), std::back_inserter(result.options));
    r = std::move(after);
  }
  if (is_smaller) {
    result.options.push_back(fmt::format("--train.micro_batch_size {}", choice.micro_batch_size));
    if (r.train.accumulate_grad_batches) {  // the global batch stays
      r.train.accumulate_grad_batches = recipe::micro_batches_of_step(r);
      result.options.push_back(
          fmt::format("--train.accumulate_grad_batches {}", *r.train.accumulate_grad_batches));
    }
  }
  if (choice.max_seq_length > 0) {
    r.train.max_seq_length = choice.max_seq_length;
    result.options.push_back(fmt::format("--train.max_seq_length {}", choice.max_seq_length));
  }
  return result;
}

std::string cost_of(const Choice& choice, const recipe::Recipe& recipe) {
  const bool is_smaller = choice.micro_batch_size != recipe.train.micro_batch_size;
  const bool is_cut = choice.max_seq_length > 0;
  if (choice.changes.empty() && is_smaller && !is_cut)
    return "same training in more and smaller matrix products: a little slower";
  if (choice.changes.empty() && !is_smaller && is_cut) return "truncates longer samples";
  if (choice.changes.size() == 1 && !is_smaller && !is_cut)
    return std::string(choice.changes.front()->cost_words);
  return "costs of all of these together";
}

std::ptrdiff_t degree(const Choice& choice) {
  std::ptrdiff_t most = 0;
  const auto count = [&](const Change* change, std::ptrdiff_t less) {
    most = std::max(most, 2 * (change - changes().data()) + 2 - less);
  };
  for (const Change* change : choice.changes)
    if (!change->same_training) count(change, 0);
  if (choice.max_seq_length > 0)
    count(&*std::ranges::find(changes(), &train_adapters, &Change::change), 1);
  return most;
}

double effort(const Choice& choice, size_t num_options, double time_factor) {
  constexpr double kOption = 0.02, kHost = 0.25;
  const auto moves = std::ranges::count_if(choice.changes, &Change::moves_to_host);
  return time_factor + kOption * static_cast<double>(num_options) +
         kHost * static_cast<double>(moves);
}

}  // namespace snug::plan
