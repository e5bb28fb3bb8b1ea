// SPDX-License-Identifier: Apache-2.0
#include "plan/suggest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "data/micro_batch.h"
#include "engine/strategy.h"
#include "plan/candidate.h"
#include "plan/changes.h"

namespace snug::plan {
namespace {

// Of a block, as one document.
data::Sample first_tokens(const data::SampleStore& samples, int64_t index, int64_t length) {
  data::Sample joined;
  for (int64_t d = 0; d < samples.num_documents(index); ++d) {
    const data::Sample own = samples.sample(index, d);
    joined.ids.insert(joined.ids.end(), own.ids.begin(), own.ids.end());
    joined.labels.insert(joined.labels.end(), own.labels.begin(), own.labels.end());
  }
  joined.ids.resize(std::min(joined.ids.size(), static_cast<size_t>(length)));
  joined.labels.resize(joined.ids.size());
  return joined;
}

data::SampleStore cut_samples(const data::SampleStore& samples, int64_t length) {
  // Blocks are joined again, so that each is full.
  if (samples.is_in_blocks())
    return data::SampleStore::build(
        samples.num_different(), samples.ignore_index(),
        [&](int64_t i) { return first_tokens(samples, i, length); }, /*num_workers=*/1);
  const int64_t documents = samples.documents_per_sample();
  data::SampleStore cut = data::SampleStore::build_groups(
      samples.num_different(), documents, samples.ignore_index(),
      [&](int64_t i) {
        std::vector<data::Sample> all;
        for (int64_t d = 0; d < documents; ++d) all.push_back(samples.sample(i, d));
        if (documents > 1) {
          data::cut_together(all, length, samples.ignore_index());
          return all;
        }
        const auto kept = std::min(all.front().ids.size(), static_cast<size_t>(length));
        all.front().ids.resize(kept);
        all.front().labels.resize(kept);
        return all;
      },
      /*num_workers=*/1);
  if (samples.count() > samples.num_different()) cut.repeat_to(samples.count());
  return cut;
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
    if (const auto& candidate =
            planned({.changes = {}, .micro_batch_size = recipe.train.micro_batch_size})) {
      lacking_ = missing(*candidate, device_);
      token_seconds_ = seconds_of_token(*candidate);
    }
  }

  // Whether a choice needs even more host memory, if only that is missing.
  bool worsens(const Choice& choice) const {
    if (lacking_.in_host == 0 || lacking_.on_device > 0) return false;
    const std::optional<Candidate>& candidate = planned(choice);
    return candidate && missing(*candidate, device_).in_host > lacking_.in_host;
  }

  // From here on plans are given up that lack more than this choice: it is what remains if nothing
  // fits. Of all others only matters whether they fit.
  void lack_no_more_than(Choice choice) {
    if (const auto lengths = shorter_lengths(); !lengths.empty()) {
      choice.micro_batch_size = 1;
      choice.max_seq_length = lengths.front();
    }
    if (const auto& candidate = planned(choice)) give_up_beyond(missing(*candidate, device_).sum());
  }
  void give_up_beyond(int64_t missing) {
    most_.on_device = device_.usable_bytes() + missing;
    if (device_.host_bytes > 0)
      most_.on_host = (device_.host_bytes + missing) / engine::named_ranks_per_node(recipe_);
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
    for (int64_t size = recipe_.train.micro_batch_size - 1; size >= 1; --size) {
      choice.micro_batch_size = size;
      if (samples % size == 0 && consider(choice)) return true;
    }
    return false;
  }

  // The same, with activation checkpointing if necessary.
  bool consider_with_less_activations(Choice choice) {
    if (consider_smaller_micro_batches(choice)) return true;
    choice.changes.insert(choice.changes.begin(), &*std::ranges::find_if(changes(), [](auto& c) {
                            return c.cost == recipe::TimeCost::Recompute;
                          }));
    return consider(choice) || consider_smaller_micro_batches(choice);
  }

  // The longest length that fits.
  bool consider_shorter_samples(Choice choice) {
    const std::vector<int64_t> lengths = shorter_lengths();
    const auto first_too_long = std::ranges::partition_point(lengths, [&](int64_t length) {
      choice.max_seq_length = length;
      return fitting(choice).has_value();
    });
    if (first_too_long == lengths.begin()) return false;
    choice.max_seq_length = *std::prev(first_too_long);
    return consider(choice);
  }

  // Keeps rows that would not fit without what they change of the training.
  void drop_other_training_for_nothing() {
    std::erase_if(rows_, [&](const Row& row) {
      Choice rest = row.choice;
      std::erase_if(rest.changes, [](const Change* change) { return !change->same_training; });
      return rest.max_seq_length == 0 && fitting(rest).has_value();
    });
  }

  // Cheapest first; if there is none, the smallest plan that was tried.
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
  // Powers of two and the middle between each two.
  std::vector<int64_t> shorter_lengths() const {
    const data::Reading& reading = work_.reading;
    if (reading.source || reading.image_size > 0) return {};  // these samples cannot be cut
    constexpr int64_t kLeast = 32;
    std::vector<int64_t> lengths;
    for (int64_t power = kLeast; power < work_.samples.longest(); power *= 2)
      for (const int64_t length : {power, power / 2 * 3})
        if (length < work_.samples.longest()) lengths.push_back(length);
    return lengths;
  }

  // Each choice is planned once: what it is a choice of stays the same, and a plan that was given
  // up would be given up again.
  const std::optional<Candidate>& planned(const Choice& choice) const {
    const auto [entry, is_new] = planned_.try_emplace(choice);
    if (is_new) entry->second = planned(changed(recipe_, choice).recipe, choice.max_seq_length);
    return entry->second;
  }

  std::optional<Candidate> planned(const recipe::Recipe& recipe, const Workload& work) const {
    try {
      Candidate candidate = evaluate_neediest(model_, recipe, work, device_, Detail::Whole, most_);
      candidate.prediction.timeline.clear();
      return candidate;
    } catch (const UserError&) {
      return std::nullopt;  // the device cannot run it
    } catch (const OutOfMemory&) {
      return std::nullopt;  // given up
    }
  }

  std::optional<Candidate> planned(const recipe::Recipe& recipe, int64_t max_seq_length) const {
    if (max_seq_length == 0) return planned(recipe, work_);
    const data::SampleStore samples = cut_samples(work_.samples, max_seq_length);
    const data::SampleStore others =
        work_.others == nullptr ? data::SampleStore() : cut_samples(*work_.others, max_seq_length);
    return planned(recipe, {.samples = samples,
                            .max_seqlen = std::min(work_.max_seqlen, max_seq_length),
                            .reading = work_.reading,
                            .made_up = work_.made_up,
                            .others = &others});
  }

  static double seconds_of_token(const Candidate& candidate) {
    return candidate.cost.tokens > 0 ? candidate.cost.seconds() / candidate.cost.tokens : 0;
  }

  std::optional<Row> fitting(const Choice& choice) const {
    Changed with = changed(recipe_, choice);
    const std::optional<Candidate>& candidate = planned(choice);
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

  // Compares the kinds of memory that the recipe lacks.
  bool needs_no_more(const Suggestion& a, const Suggestion& b) const {
    const bool host_only = lacking_.in_host > 0 && lacking_.on_device == 0;
    return a.host_bytes <= b.host_bytes && (host_only || a.peak_allocated <= b.peak_allocated);
  }

  // Drops duplicates, and rows that add changes to another row's without saving more.
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

  // Removes changes that save nothing beside the others, starting with the costliest.
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
  Missing lacking_;           // of the unchanged recipe
  double token_seconds_ = 0;  // of the unchanged recipe; 0: it cannot be planned
  Most most_;
  mutable std::map<Choice, std::optional<Candidate>> planned_;
  std::vector<Row> rows_;
  // The smallest of the plans that do not fit, and what it lacks.
  mutable std::optional<Suggestion> smallest_;
  mutable int64_t smallest_missing_ = 0;
};

void add(Choice& together, const Change& change) {
  if (change.names_optimizer)
    std::erase_if(together.changes, [](const Change* c) { return c->names_optimizer; });
  together.changes.push_back(&change);
}

}  // namespace

std::vector<Suggestion> suggest(const models::Model& model, const recipe::Recipe& recipe,
                                const Workload& work, const DeviceProfile& device) {
  SuggestionSearch search(model, recipe, work, device);
  const Choice alone{.changes = {}, .micro_batch_size = recipe.train.micro_batch_size};
  std::vector<Choice> single;
  Choice together = alone;
  for (const Change& change : changes()) {
    recipe::Recipe after = recipe;
    const Choice only{.changes = {&change}, .micro_batch_size = alone.micro_batch_size};
    const bool does_nothing =
        change.on != nullptr && change.on->for_experts && model.routing().num_experts == 0;
    if (does_nothing || !change.apply(after) || search.worsens(only)) continue;
    single.push_back(only);
    add(together, change);
  }
  if (!together.changes.empty()) search.lack_no_more_than(together);
  together = alone;
  search.consider_smaller_micro_batches(together);
  bool combined = false, any = false;
  for (const Choice& only : single) {
    const Change& change = *only.changes.front();
    const bool fits_alone = search.consider(only);
    // Changes that save weights and states may need to save activations too.
    if (!fits_alone && !change.same_training && !change.names_optimizer)
      any |= search.consider_with_less_activations(only);
    add(together, change);
    // Once a combination fits, adding more changes only costs more.
    if (together.changes.size() == 1 || combined) continue;
    combined = search.consider(together);
    if (!combined) any |= search.consider_smaller_micro_batches(together);
  }
  const Choice one_sample{.changes = {}, .micro_batch_size = 1};
  if (!search.consider_shorter_samples(alone) && !search.consider_shorter_samples(one_sample) &&
      !combined && !any) {
    // Everything together saves most.
    together.micro_batch_size = 1;
    search.consider_shorter_samples(together);
  }
  return search.found();
}

std::vector<Suggestion> suggest_other_training(const models::Model& model,
                                               const recipe::Recipe& recipe, const Workload& work,
                                               const DeviceProfile& device) {
  SuggestionSearch search(model, recipe, work, device);
  search.give_up_beyond(0);
  for (const Change& change : changes()) {
    recipe::Recipe alone = recipe;
    if (change.same_training || !change.apply(alone)) continue;
    const Choice only{.changes = {&change}, .micro_batch_size = recipe.train.micro_batch_size};
    if (!search.consider(only)) search.consider_with_less_activations(only);
  }
  search.consider_shorter_samples(
      {.changes = {}, .micro_batch_size = recipe.train.micro_batch_size});
  search.drop_other_training_for_nothing();
  std::vector<Suggestion> found = search.found();
  std::erase_if(found, [](const Suggestion& s) { return !s.fits; });
  return found;
}

}  // namespace snug::plan
