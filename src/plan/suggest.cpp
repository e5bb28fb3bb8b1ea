// SPDX-License-Identifier: Apache-2.0
#include "plan/suggest.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "config/names.h"
#include "config/rows.h"
#include "data/micro_batch.h"
#include "plan/fit.h"
#include "setup/strategy.h"

namespace snug::plan {
namespace {

// One change to a recipe; `apply` returns false where it changes nothing.
struct Change {
  std::string_view options;  // but for those that offload the optimizer: they depend on the recipe
  std::string_view cost;
  bool (*apply)(config::Recipe&);
  bool same_training = true;
};

bool checkpoint_activations(config::Recipe& r) {
  const bool changes = r.activation_checkpointing == "none";
  r.activation_checkpointing = "all";
  return changes;
}
bool use_in_backward(config::Recipe& r) {
  const bool changes = !r.optimizer_in_backward && !r.delayed_parameter_update &&
                       r.precision != "16-mixed" && r.train.max_norm.value_or(0) == 0 &&
                       r.train.on_oom != "split";
  r.optimizer_in_backward = r.optimizer_in_backward || changes;
  return changes;
}
bool offload_optimizer(config::Recipe& r) {
  const bool changes = r.optimizer_offload == "none";
  if (changes) r.optimizer_offload = "cpu";
  return changes;
}
bool stream_weights(config::Recipe& r) {
  if (r.delayed_parameter_update) return false;
  const bool changes = !r.weight_streaming;
  if (r.optimizer_offload == "none") r.optimizer_offload = "cpu";
  r.weight_streaming = true;
  return changes;
}
bool shard_more(config::Recipe& r) {
  const bool is_sharded = r.strategy == "auto" || r.strategy == "fsdp" || r.strategy == "hybrid";
  const bool changes =
      setup::named_ranks(r) > 1 && r.mesh.empty() && !is_sharded && r.optimizer.name != "adafactor";
  if (changes) r.strategy = "fsdp";
  return changes;
}
bool offload_activations(config::Recipe& r) {
  const bool changes = !r.activation_offload;
  r.activation_offload = true;
  return changes;
}
bool use_bf16(config::Recipe& r) {
  const bool changes = r.precision != "bf16-true" && r.precision != "16-true";
  r.precision = "bf16-true";
  return changes;
}
bool use_8bit(config::Recipe& r) {
  const bool changes = r.optimizer.name == "adamw";
  if (changes) r.optimizer.name = "adamw_8bit";
  return changes;
}
bool use_sgd(config::Recipe& r) {
  const bool changes = r.optimizer.name != "sgd" || r.optimizer.momentum != 0;
  r.optimizer.name = "sgd";
  r.optimizer.momentum = 0;
  r.optimizer.nesterov = false;
  return changes;
}

constexpr Change kChanges[] = {
    {"--optimizer_in_backward", "the same training at about the same speed", use_in_backward},
    {"--strategy fsdp", "weights travel between devices, twice a micro-batch", shard_more},
    {"--activation_checkpointing all", "every block runs forward twice: about 30 % slower",
     checkpoint_activations},
    {"", "states and updates in host memory: gradients and weights travel", offload_optimizer},
    {"--activation_offload", "activations travel to host memory and back", offload_activations},
    {"--weight_streaming", "weights in host memory too: they travel twice a micro-batch",
     stream_weights},
    {"--precision bf16-true", "weights and states in two bytes: less exact updates", use_bf16,
     false},
    {"--optimizer adamw_8bit", "states in one byte each: rounded moments", use_8bit, false},
    {"--optimizer SGD", "no optimizer states: needs another learning rate, learns slower", use_sgd,
     false},
};

// Choosing an optimizer loads its defaults: what somebody gave for the other one is said again, and
// taken back where the new one has no such argument.
std::string optimizer_arguments(const config::Recipe& before, config::Recipe after) {
  std::string text;
  if (after.optimizer == before.optimizer) return text;
  const std::vector<config::Row> rows = config::recipe_rows(after);
  for (const std::string& key : before.given_keys) {
    static constexpr std::string_view kGroup = "optimizer.";
    if (!key.starts_with(kGroup) || key == "optimizer.class_path") continue;
    const bool taken =
        config::optimizer_takes(after.optimizer.name, std::string_view(key).substr(kGroup.size()));
    std::string value = taken ? config::plain_text(*config::find_row(rows, key)) : "none";
    std::erase(value, ' ');
    text += fmt::format(" --{} {}", key, value);
  }
  return text;
}

// What takes a recipe from `before` to `after` by this change, as typed.
std::string options_of(const Change& change, const config::Recipe& before,
                       const config::Recipe& after) {
  std::string text;
  if (after.optimizer_offload != before.optimizer_offload)
    text = "--optimizer_offload " + after.optimizer_offload;
  if (!change.options.empty()) text += (text.empty() ? "" : " ") + std::string(change.options);
  return text + optimizer_arguments(before, after);
}

class Search {
 public:
  Search(const models::Model& model, const Workload& work, const DeviceProfile& device)
      : model_(model), work_(work), device_(device) {}

  // Adds the candidate when it fits.
  bool consider(const config::Recipe& recipe, Suggestion suggestion) {
    try {
      const Candidate candidate = evaluate_neediest(model_, recipe, work_, device_);
      if (!fits(candidate, device_)) return false;
      suggestion.peak_allocated = candidate.prediction.peak_allocated;
      suggestion.step_seconds = candidate.cost.seconds();
      found_.push_back(std::move(suggestion));
      return true;
    } catch (const UserError&) {
      return false;  // the device has no way to run it
    }
  }
  std::vector<Suggestion> found() {
    std::stable_sort(found_.begin(), found_.end(), [](const Suggestion& a, const Suggestion& b) {
      return a.same_training != b.same_training ? a.same_training : a.step_seconds < b.step_seconds;
    });
    return std::move(found_);
  }

 private:
  const models::Model& model_;
  const Workload& work_;
  const DeviceProfile& device_;
  std::vector<Suggestion> found_;
};

// The largest smaller micro-batch that fits; the global batch stays, so training does not change.
void consider_smaller_micro_batches(Search& search, config::Recipe recipe,
                                    const Suggestion& suggestion) {
  for (int64_t size = recipe.train.micro_batch_size / 2; size >= 1; size /= 2) {
    recipe.train.micro_batch_size = size;
    // Gradients are then added up over micro-batches, which leaves nothing to free.
    if (recipe.optimizer_in_backward_is_auto) recipe.optimizer_in_backward = false;
    Suggestion smaller = suggestion;
    smaller.options +=
        fmt::format("{}--train.micro_batch_size {}", smaller.options.empty() ? "" : " ", size);
    if (search.consider(recipe, smaller)) return;
  }
}

}  // namespace

std::vector<Suggestion> suggest(const models::Model& model, const config::Recipe& recipe,
                                const Workload& work, const DeviceProfile& device) {
  Search search(model, work, device);
  consider_smaller_micro_batches(
      search, recipe, {.cost = "same training, more and smaller products: a little slower"});
  config::Recipe together = recipe;
  Suggestion all{.cost = "all of these costs together"};
  bool combined = false;
  for (const Change& change : kChanges) {
    config::Recipe alone = recipe;
    if (!change.apply(alone)) continue;
    search.consider(alone, {.options = options_of(change, recipe, alone),
                            .cost = std::string(change.cost),
                            .same_training = change.same_training});
    const config::Recipe before = together;
    change.apply(together);
    const bool first = all.options.empty();
    all.options += (first ? "" : " ") + options_of(change, before, together);
    all.same_training = all.same_training && change.same_training;
    // Once some of them fit together, more of them only cost more.
    if (first || combined) continue;
    combined = search.consider(together, all);
    if (!combined) consider_smaller_micro_batches(search, together, all);
  }
  return search.found();
}

}  // namespace snug::plan
