// SPDX-License-Identifier: Apache-2.0
#include "plan/search_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <string_view>
#include <utility>

#include "engine/parallel/tensor_parallel.h"
#include "engine/strategy.h"
#include "models/family.h"
#include "recipe/check.h"
#include "recipe/mesh.h"

namespace snug::plan {
namespace {

using recipe::Technique;

constexpr size_t kMost = 1000;  // a technique's last value

// By the cost of techniques, which of their values they have; the others, and those that take
// memory, are off.
Setting setting_of(const std::map<recipe::TimeCost, size_t>& on) {
  Setting setting;
  for (const Technique& technique : recipe::techniques()) {
    const auto found = technique.takes_memory() ? on.end() : on.find(technique.cost);
    const size_t place = found == on.end() ? 0 : found->second;
    setting.values.emplace_back(technique.values[std::min(place, technique.values.size() - 1)]);
  }
  return setting;
}

const Technique& taking_a_folder() {
  return *std::ranges::find(recipe::techniques(), true, &Technique::takes_folder);
}

// The values, from the one that takes most memory to the one that takes least.
std::vector<std::string_view> toward_lean(const Technique& technique) {
  std::vector<std::string_view> values = technique.values;
  if (technique.takes_memory()) std::ranges::reverse(values);
  return values;
}

Setting leanest() {
  Setting setting;
  for (const Technique& technique : recipe::techniques())
    setting.values.emplace_back(toward_lean(technique).back());
  return setting;
}

}  // namespace

std::vector<Setting> Techniques::all() const {
  std::vector<Setting> all(1);  // the first technique varies fastest
  for (const Technique& technique : recipe::techniques()) {
    std::vector<Setting> more;
    for (const std::string_view value : toward_lean(technique))
      for (Setting setting : all) {
        setting.values.emplace_back(value);
        more.push_back(std::move(setting));
      }
    all = std::move(more);
  }
  return as_given(std::move(all));
}

// By what techniques cost: with some values of those that compute again, beside what is free, what
// goes to the host, and what takes memory and time off that.
std::vector<Setting> Techniques::few() const {
  using enum recipe::TimeCost;
  std::vector<Setting> few{setting_of({})};
  for (const size_t again : {size_t{1}, size_t{2}, kMost})
    few.push_back(setting_of({{Recompute, again}}));
  few.push_back(setting_of({{Nothing, kMost}, {Recompute, kMost}}));
  few.push_back(setting_of({{Recompute, kMost}, {CopiedActivations, kMost}}));
  for (const size_t again : {size_t{0}, size_t{1}, kMost})
    for (const bool changes_training : {true, false}) {
      few.push_back(setting_of({{UpdatesOnHost, kMost}, {Recompute, again}}));
      for (const Technique& technique : recipe::techniques())
        if (changes_training && !technique.changes_training.empty())
          few.back()[technique.key] = technique.values.back();
    }
  few.push_back(setting_of({{UpdatesOnHost, kMost}, {CopiedWeights, kMost}, {Recompute, kMost}}));
  few.push_back(leanest());
  return as_given(std::move(few));
}

std::vector<Setting> Techniques::on_disk(std::vector<Setting> settings, const std::string& folder) {
  const Technique& technique = taking_a_folder();
  std::erase_if(settings, [&](const Setting& setting) { return !setting.is_on(technique.key); });
  for (Setting& setting : settings) setting[technique.key] = "disk:" + folder;
  return settings;
}

bool Techniques::may_use_disk() const { return is_free(taking_a_folder()); }

bool Setting::saves_by_size() const {
  return std::ranges::any_of(recipe::techniques(), [&](const Technique& technique) {
    return technique.for_one_micro_batch && is_on(technique.key);
  });
}

bool Techniques::is_free(const Technique& technique) const {
  if (technique.may_try != nullptr && !technique.may_try(recipe_)) return false;
  if (technique.gains_on_gpus_only && !on_gpu_) return false;
  if (technique.for_experts && !has_experts_) return false;
  recipe::Recipe copy = recipe_;
  const recipe::Row option = technique.option(copy);
  return !recipe_.given(option.key) || (option.automatic != nullptr && *option.automatic);
}

std::vector<Setting> Techniques::as_given(std::vector<Setting> settings) const {
  std::vector<std::pair<std::string_view, std::string>> given;
  for (const Technique& technique : recipe::techniques())
    if (!is_free(technique)) given.emplace_back(technique.key, value_of(technique, recipe_));
  std::vector<Setting> different;
  for (Setting& setting : settings) {
    for (const auto& [key, value] : given) setting[key] = value;
    const bool is_new = std::ranges::find(different, setting) == different.end();
    if (is_new && recipe::can_be_combined(applied(recipe_, setting)))
      different.push_back(std::move(setting));
  }
  return different;
}

recipe::Recipe Techniques::applied(recipe::Recipe recipe, const Setting& setting) {
  for (const Technique& technique : recipe::techniques())
    set_value(technique, recipe, setting[technique.key]);
  recipe.train.accumulate_grad_batches.reset();  // the global batch stays
  return recipe;
}

std::string technique_options(const recipe::Recipe& from, const recipe::Recipe& to) {
  std::string text;
  for (const Technique& technique : recipe::techniques()) {
    recipe::Recipe copy = from;
    const recipe::Row option = technique.option(copy);
    const std::string value = value_of(technique, to);
    const bool was_auto = option.automatic != nullptr && *option.automatic;
    if (was_auto || plain_text(option) != value)
      text += fmt::format("{}--{} {}", text.empty() ? "" : " ", option.key, value);
  }
  return text;
}

namespace {

using recipe::Axis;

std::vector<int64_t> divisors(int64_t whole) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d <= whole; ++d)
    if (whole % d == 0) found.push_back(d);
  return found;
}

// By how many ranks along tp each layer can be shared.
std::vector<int64_t> tensor_sizes(models::Model& model, const recipe::Recipe& recipe) {
  return divisors(std::gcd(engine::common_shares(model), engine::named_ranks_per_node(recipe)));
}

// How the devices that neither tensor nor pipeline takes share their samples.
std::vector<Layout> data_layouts(const recipe::Recipe& recipe, recipe::MeshShape mesh,
                                 int64_t copies) {
  const auto with = [&](recipe::Strategy strategy, int64_t replicate, int64_t shard) -> Layout {
    mesh[Axis::Replicate] = static_cast<int>(replicate);
    mesh[Axis::Shard] = static_cast<int>(shard);
    return {.strategy = strategy, .mesh = recipe::mesh_text(mesh)};
  };
  std::vector<Layout> found{with(recipe::Strategy::Auto, copies, 1)};
  if (copies == 1) return found;
  found.push_back(with(recipe::Strategy::Zero1, 1, copies));
  // Gradients would be summed for each micro-batch of each stage.
  if (mesh[Axis::Pipeline] == 1) found.push_back(with(recipe::Strategy::Zero2, 1, copies));
  found.push_back(with(recipe::Strategy::Fsdp, 1, copies));
  const int64_t on_machine = engine::named_ranks_per_node(recipe) / mesh[Axis::Tensor];
  if (on_machine > 1 && copies > on_machine && copies % on_machine == 0)
    found.push_back(with(recipe::Strategy::Fsdp, copies / on_machine, on_machine));
  return found;
}

bool is_allowed(const recipe::Recipe& recipe, const Layout& layout) {
  recipe::Recipe r = laid_out(recipe, layout);
  // The search chooses it, and the global batch stays.
  r.train.accumulate_grad_batches.reset();
  if (!recipe.given("train.micro_batch_size")) r.train.micro_batch_size = 1;
  return recipe::layout_faults(r).empty();
}

}  // namespace

bool Layout::divides_the_model() const {
  recipe::MeshShape shape;
  return recipe::read_mesh(mesh, shape).empty() && shape[Axis::Pipeline] * shape[Axis::Tensor] > 1;
}

recipe::Recipe laid_out(recipe::Recipe recipe, const Layout& layout) {
  recipe.strategy = layout.strategy;
  recipe.mesh = layout.mesh;
  recipe.pipeline_interleave = layout.interleave;
  return recipe;
}

std::vector<Layout> layouts(const models::Model& model, const recipe::Recipe& recipe) {
  const int64_t ranks = engine::named_ranks(recipe);
  const Layout own{recipe.strategy, recipe.mesh, recipe.pipeline_interleave};
  if (recipe.given("strategy") || !recipe.mesh.empty() || ranks == 1) return {own};
  std::vector<Layout> found;
  const auto add = [&](const Layout& layout) {
    if (is_allowed(recipe, layout)) found.push_back(layout);
  };
  using enum recipe::Strategy;
  for (const recipe::Strategy strategy : {Ddp, Zero1, Zero2, Fsdp, Hybrid})
    if (recipe.num_nodes > 1 || strategy != Hybrid) add({.strategy = strategy});
  const std::unique_ptr<models::Model> whole = models::model_like(model);
  const auto num_units = std::ssize(whole->units());
  for (const int64_t tensor : tensor_sizes(*whole, recipe))
    for (const int64_t stages : divisors(ranks / tensor)) {
      if (tensor * stages == 1 || stages > num_units) continue;
      recipe::MeshShape mesh;
      mesh[Axis::Pipeline] = static_cast<int>(stages);
      mesh[Axis::Tensor] = static_cast<int>(tensor);
      for (Layout layout : data_layouts(recipe, mesh, ranks / (tensor * stages))) {
        add(layout);
        layout.interleave = 2;
        const bool may_interleave = stages > 1 && 2 * stages <= num_units;
        if (may_interleave && !recipe.given("pipeline_interleave")) add(layout);
      }
    }
  return found;
}

}  // namespace snug::plan
