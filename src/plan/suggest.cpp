// SPDX-License-Identifier: Apache-2.0
#include "plan/suggest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "data/micro_batch.h"
#include "engine/strategy.h"
#include "plan/fit.h"
#include "recipe/batches.h"
#include "recipe/options/rows.h"
#include "recipe/tables/optimizers.h"
#include "recipe/tables/techniques.h"

namespace snug::plan {
namespace {

using recipe::Precision;
using recipe::Strategy;
using recipe::TimeCost;

// One change to a recipe: a technique that is turned on, or something else.
struct Change {
  const recipe::TechniqueTraits* technique = nullptr;
  std::string_view options = {};  // but for techniques, whose options depend on the recipe
  std::string_view cost_words = {};
  bool (*change)(recipe::Recipe&) = nullptr;
  TimeCost cost = TimeCost::Nothing;
  bool same_training = true;
  bool names_optimizer = false;  // takes the place of another one that does

  // Returns false where it changes nothing.
  bool apply(recipe::Recipe& r) const {
    return technique != nullptr ? turn_on(*technique, r) : change(r);
  }
  bool moves_to_host() const { return cost >= TimeCost::UpdatesOnHost; }
};

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

// What changes nothing of what is learnt, by what it costs in time, then the rest by how much it
// changes.
std::vector<Change> all_changes() {
  std::vector<Change> all = {
      {.options = "--strategy fsdp",
       .cost_words = "weights are gathered from the other devices, twice per micro-batch",
       .change = shard_more,
       .cost = TimeCost::Communication}};
  for (const recipe::TechniqueTraits& traits : recipe::techniques())
    if (!traits.cost_words.empty())
      all.push_back({.technique = &traits, .cost_words = traits.cost_words, .cost = traits.cost});
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

const std::vector<Change>& changes() {
  static const std::vector<Change> kChanges = all_changes();
  return kChanges;
}

// "--activation_checkpointing all" and its like, for what `after` has on and `before` has not.
std::vector<std::string> techniques_turned_on(const recipe::Recipe& before, recipe::Recipe after) {
  std::vector<std::string> options;
  for (const recipe::TechniqueTraits& traits : recipe::techniques())
    if (is_on(traits, after) && !is_on(traits, before)) {
      const recipe::Row row = traits.option(after);
      options.push_back("--" + row.key + (is_flag(row) ? "" : " " + plain_text(row)));
    }
  return options;
}

// Choosing an optimizer loads its defaults: what somebody gave for the other one is said again, and
// taken back where the new one has no such argument.
std::string optimizer_arguments(const recipe::Recipe& before, recipe::Recipe after) {
  std::string text;
  if (after.optimizer == before.optimizer) return text;
  const std::vector<recipe::Row> rows = recipe::recipe_rows(after);
  for (const std::string& key : before.given_keys) {
    static constexpr std::string_view kGroup = "optimizer.";
    if (!key.starts_with(kGroup) || key == "optimizer.class_path") continue;
    const bool taken =
        recipe::optimizer_takes(after.optimizer.name, std::string_view(key).substr(kGroup.size()));
    std::string value = taken ? recipe::plain_text(*recipe::find_row(rows, key)) : "none";
    std::erase(value, ' ');
    text += fmt::format(" --{} {}", key, value);
  }
  return text;
}

// What takes a recipe from `before` to `after` by this change, as typed, each option with its
// value.
std::vector<std::string> options_of(const Change& change, const recipe::Recipe& before,
                                    const recipe::Recipe& after) {
  std::vector<std::string> options = techniques_turned_on(before, after);
  if (after.lora.enabled && !before.lora.enabled) {
    if (before.given("full")) options.emplace_back("--full false");
    if (!after.quantize.empty()) options.emplace_back("--lora_r 8");
  }
  if (!change.options.empty())
    options.push_back(std::string(change.options) + optimizer_arguments(before, after));
  return options;
}

// Some changes, in the order of changes(), a micro-batch, and a length that samples are cut to.
struct Choice {
  std::vector<const Change*> changes;
  int64_t micro_batch_size = 0;
  int64_t max_seq_length = 0;  // 0: they are not cut
};

struct Changed {
  recipe::Recipe recipe;
  std::vector<std::string> options;
};

// What somebody who types these options gets.
Changed changed(const recipe::Recipe& recipe, const Choice& choice) {
  Changed result{.recipe = recipe, .options = {}};
  recipe::Recipe& r = result.recipe;
  const bool is_smaller = choice.micro_batch_size != recipe.train.micro_batch_size;
  r.train.micro_batch_size = choice.micro_batch_size;
  if (is_smaller && r.optimizer_in_backward && sums_micro_batches(r)) {
    r.optimizer_in_backward = false;
    if (!r.optimizer_in_backward_is_auto)
      result.options.emplace_back("--optimizer_in_backward false");
  }
  for (const Change* change : choice.changes) {
    recipe::Recipe after = r;
    if (!change->apply(after)) continue;
    std::ranges::copy(options_of(*change, r, after), std::back_inserter(result.options));
    r = std::move(after);
  }
  if (is_smaller)
    result.options.push_back(fmt::format("--train.micro_batch_size {}", choice.micro_batch_size));
  if (choice.max_seq_length > 0) {
    r.train.max_seq_length = choice.max_seq_length;
    result.options.push_back(fmt::format("--train.max_seq_length {}", choice.max_seq_length));
  }
  return result;
}

data::SampleStore cut_samples(const data::SampleStore& samples, int64_t length) {
  data::SampleStore cut = data::SampleStore::build(
      samples.num_different(), samples.ignore_index(),
      [&](int64_t i) {
        data::Sample sample = samples.sample(i);
        const auto kept = std::min(sample.ids.size(), static_cast<size_t>(length));
        sample.ids.resize(kept);
        sample.labels.resize(kept);
        return sample;
      },
      /*num_workers=*/1);
  if (samples.count() > samples.num_different()) cut.repeat_to(samples.count());
  return cut;
}

// What a person pays, as a share of the time: each option more is something to think about, and
// what moves to the host takes memory there and depends on the link.
double effort(const Choice& choice, size_t num_options, double time_factor) {
  constexpr double kOption = 0.02, kHost = 0.25;
  const auto moves = std::ranges::count_if(choice.changes, &Change::moves_to_host);
  return time_factor + kOption * static_cast<double>(num_options) +
         kHost * static_cast<double>(moves);
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

// How much of what is learnt a choice changes, by the order of changes(); 0: nothing. Shorter
// samples count as less than adapters.
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

// A choice that fits.
struct Row {
  Choice choice;
  std::vector<std::string> options;
  Suggestion suggestion;
  double effort = 0;
};

class SuggestionSearch {
 public:
  SuggestionSearch(const models::Model& model, const recipe::Recipe& recipe, const Workload& work,
                   const DeviceProfile& device)
      : model_(model), recipe_(recipe), work_(work), device_(device) {
    if (const auto candidate = planned(recipe)) {
      lacking_ = missing(*candidate, device_);
      token_seconds_ = seconds_of_token(*candidate);
    }
  }

  // Whether a recipe takes still more of the host, which alone has too little, as what moves there
  // does.
  bool worsens(const recipe::Recipe& recipe) const {
    if (lacking_.in_host == 0 || lacking_.on_device > 0) return false;
    const std::optional<Candidate> candidate = planned(recipe);
    return candidate && missing(*candidate, device_).in_host > lacking_.in_host;
  }

  // Adds the choice when it fits.
  bool consider(const Choice& choice) {
    std::optional<Row> row = fitting(choice);
    if (!row) return false;
    rows_.push_back(*std::move(row));
    return true;
  }
  // The largest smaller micro-batch that fits; the global batch stays, so training does not change.
  bool consider_smaller_micro_batches(Choice choice) {
    const int64_t samples =
        recipe_.train.global_batch_size / engine::named_strategy(recipe_).mesh.num_data_ranks();
    for (int64_t size = recipe_.train.micro_batch_size / 2; size >= 1; size /= 2) {
      choice.micro_batch_size = size;
      if (samples % size == 0 && consider(choice)) return true;
    }
    return false;
  }

  // The same, if need be with activation checkpointing.
  bool consider_with_less_activations(Choice choice) {
    if (consider_smaller_micro_batches(choice)) return true;
    const auto* checkpointing = &recipe::traits_of(recipe::Technique::ActivationCheckpointing);
    choice.changes.insert(choice.changes.begin(),
                          &*std::ranges::find(changes(), checkpointing, &Change::technique));
    return consider(choice) || consider_smaller_micro_batches(choice);
  }

  // The longest length that fits: powers of two, and one between each two of them.
  bool consider_shorter_samples(Choice choice) {
    const data::Reading& reading = work_.reading;
    if (reading.source || reading.image_size > 0) return false;  // parts of samples are cut apart
    constexpr int64_t kLeast = 32;
    std::vector<int64_t> lengths;
    for (int64_t power = kLeast; power < work_.samples.longest(); power *= 2)
      for (const int64_t length : {power, power / 2 * 3})
        if (length < work_.samples.longest()) lengths.push_back(length);
    const auto first_too_long = std::ranges::partition_point(lengths, [&](int64_t length) {
      choice.max_seq_length = length;
      return fitting(choice).has_value();
    });
    if (first_too_long == lengths.begin()) return false;
    choice.max_seq_length = *std::prev(first_too_long);
    return consider(choice);
  }

  // Cheapest first; where there is none the smallest plan of all that were tried.
  std::vector<Suggestion> found() {
    drop_what_saves_nothing();
    for (Row& row : rows_) row = without_idle_changes(row);
    drop_what_saves_nothing();
    std::stable_sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) {
      const std::ptrdiff_t less = degree(a.choice), more = degree(b.choice);
      return less != more ? less < more : a.effort < b.effort;
    });
    std::vector<Suggestion> found;
    for (Row& row : rows_) found.push_back(std::move(row.suggestion));
    if (found.empty() && smallest_) found.push_back(*smallest_);
    return found;
  }

 private:
  std::optional<Candidate> planned(const recipe::Recipe& recipe) const {
    return planned(recipe, work_);
  }
  std::optional<Candidate> planned(const recipe::Recipe& recipe, const Workload& work) const {
    try {
      return evaluate_neediest(model_, recipe, work, device_);
    } catch (const UserError&) {
      return std::nullopt;  // the device has no way to run it
    }
  }

  std::optional<Candidate> planned(const recipe::Recipe& recipe, int64_t max_seq_length) const {
    if (max_seq_length == 0) return planned(recipe);
    const data::SampleStore samples = cut_samples(work_.samples, max_seq_length);
    return planned(recipe, {.samples = samples,
                            .max_seqlen = std::min(work_.max_seqlen, max_seq_length),
                            .reading = work_.reading,
                            .made_up = work_.made_up});
  }

  static double seconds_of_token(const Candidate& candidate) {
    return candidate.cost.tokens > 0 ? candidate.cost.seconds() / candidate.cost.tokens : 0;
  }

  std::optional<Row> fitting(const Choice& choice) const {
    Changed with = changed(recipe_, choice);
    const std::optional<Candidate> candidate = planned(with.recipe, choice.max_seq_length);
    if (!candidate) return std::nullopt;
    Suggestion suggestion{
        .options = fmt::format("{}", fmt::join(with.options, " ")),
        .cost = cost_of(choice, recipe_),
        .peak_allocated = candidate->prediction.peak_allocated,
        .needed_on_device = bytes_on_device(candidate->prediction, device_.kind),
        .step_seconds = candidate->cost.seconds(),
        .time_factor = token_seconds_ > 0 ? seconds_of_token(*candidate) / token_seconds_ : 0,
        .same_training = choice.max_seq_length == 0,
        .adds_adapters = with.recipe.lora.enabled && !recipe_.lora.enabled,
        .fits = fits(*candidate, device_)};
    if (lacking_.in_host > 0)
      suggestion.host_bytes = host_bytes_needed(candidate->prediction, device_.kind,
                                                engine::named_ranks_per_node(with.recipe));
    for (const Change* change : choice.changes) suggestion.same_training &= change->same_training;
    if (beyond_assumed_host(*candidate, device_) > 0)
      suggestion.cost += fmt::format("; needs more than the assumed {} of host memory",
                                     format_bytes(device_.assumed_host_bytes));
    if (!suggestion.fits) {
      remember_smallest(suggestion, missing(*candidate, device_).sum());
      return std::nullopt;
    }
    const double effort_of_row = effort(choice, with.options.size(), suggestion.time_factor);
    return Row{choice, std::move(with.options), std::move(suggestion), effort_of_row};
  }

  void remember_smallest(const Suggestion& suggestion, int64_t missing) const {
    if (smallest_ && missing >= smallest_missing_) return;
    smallest_ = suggestion;
    smallest_missing_ = missing;
  }

  // Of what the recipe has too little of.
  bool needs_no_more(const Suggestion& a, const Suggestion& b) const {
    const bool host_only = lacking_.in_host > 0 && lacking_.on_device == 0;
    return a.host_bytes <= b.host_bytes && (host_only || a.peak_allocated <= b.peak_allocated);
  }

  // Rows that ask for all of another one's changes, and more, for nothing; and those that come
  // twice.
  void drop_what_saves_nothing() {
    std::vector<Row> kept;
    for (size_t i = 0; i < rows_.size(); ++i) {
      bool saves = true;
      for (size_t k = 0; k < rows_.size() && saves; ++k) {
        const std::vector<std::string>&some = rows_[k].options, &all = rows_[i].options;
        const bool has_all = std::ranges::all_of(some, [&](const std::string& option) {
          return std::ranges::find(all, option) != all.end();
        });
        const bool is_less = some.size() < all.size() || (some.size() == all.size() && k < i);
        saves = !has_all || !is_less || !needs_no_more(rows_[k].suggestion, rows_[i].suggestion);
      }
      if (saves) kept.push_back(rows_[i]);
    }
    rows_ = std::move(kept);
  }

  // Without the changes that save nothing beside the others, the costliest first.
  Row without_idle_changes(Row row) const {
    for (size_t i = row.choice.changes.size(); i-- > 0;) {
      Choice fewer = row.choice;
      fewer.changes.erase(fewer.changes.begin() + static_cast<std::ptrdiff_t>(i));
      if (changed(recipe_, fewer).options.empty()) continue;
      std::optional<Row> less = fitting(fewer);
      if (less && needs_no_more(less->suggestion, row.suggestion)) row = *std::move(less);
    }
    return row;
  }

  const models::Model& model_;
  const recipe::Recipe& recipe_;
  const Workload& work_;
  const DeviceProfile& device_;
  Missing lacking_;           // for the recipe as it is
  double token_seconds_ = 0;  // of it; 0: it cannot be planned
  std::vector<Row> rows_;
  // Of what does not fit.
  mutable std::optional<Suggestion> smallest_;
  mutable int64_t smallest_missing_ = 0;
};

}  // namespace

std::vector<Suggestion> suggest(const models::Model& model, const recipe::Recipe& recipe,
                                const Workload& work, const DeviceProfile& device) {
  SuggestionSearch search(model, recipe, work, device);
  Choice together{.changes = {}, .micro_batch_size = recipe.train.micro_batch_size};
  search.consider_smaller_micro_batches(together);
  bool combined = false, any = false;
  for (const Change& change : changes()) {
    recipe::Recipe alone = recipe;
    if (!change.apply(alone) || search.worsens(alone)) continue;
    const Choice only{.changes = {&change}, .micro_batch_size = recipe.train.micro_batch_size};
    const bool fits_alone = search.consider(only);
    // What saves most of weights and states needs help with activations.
    if (!fits_alone && !change.same_training && !change.names_optimizer)
      any |= search.consider_with_less_activations(only);
    if (change.names_optimizer)
      std::erase_if(together.changes, [](const Change* c) { return c->names_optimizer; });
    together.changes.push_back(&change);
    // Once some of them fit together, more of them only cost more.
    if (together.changes.size() == 1 || combined) continue;
    combined = search.consider(together);
    if (!combined) any |= search.consider_smaller_micro_batches(together);
  }
  const Choice alone{.changes = {}, .micro_batch_size = recipe.train.micro_batch_size};
  const Choice one_sample{.changes = {}, .micro_batch_size = 1};
  if (!search.consider_shorter_samples(alone) && !search.consider_shorter_samples(one_sample) &&
      !combined && !any) {
    // The most that all of them save together.
    together.micro_batch_size = 1;
    search.consider_shorter_samples(together);
  }
  return search.found();
}

}  // namespace snug::plan
