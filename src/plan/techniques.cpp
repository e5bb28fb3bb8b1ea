// SPDX-License-Identifier: Apache-2.0
#include "plan/techniques.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace snug::plan {
namespace {

using recipe::Technique;
using recipe::TechniqueTraits;
using enum recipe::Technique;

Setting setting_of(const std::map<Technique, std::string_view>& on) {
  Setting setting;
  for (const TechniqueTraits& traits : recipe::techniques()) {
    const auto found = on.find(traits.technique);
    setting.values.emplace_back(found == on.end() ? traits.values.front() : found->second);
  }
  return setting;
}

// All that save memory, at their leanest.
Setting leanest() {
  Setting setting;
  for (const TechniqueTraits& traits : recipe::techniques())
    setting.values.emplace_back(traits.cost_words.empty() ? traits.values.front()
                                                          : traits.values.back());
  return setting;
}

}  // namespace

std::vector<Setting> Techniques::all() const {
  std::vector<Setting> all(1);  // the first technique varies fastest
  for (const TechniqueTraits& traits : recipe::techniques()) {
    std::vector<Setting> more;
    for (const std::string_view value : traits.values)
      for (Setting setting : all) {
        setting.values.emplace_back(value);
        more.push_back(std::move(setting));
      }
    all = std::move(more);
  }
  return as_given(std::move(all));
}

std::vector<Setting> Techniques::few() const {
  std::vector<Setting> few{setting_of({})};
  for (const char* checkpointing : {"selective", "every:2", "all"})
    few.push_back(setting_of({{ActivationCheckpointing, checkpointing}}));
  few.push_back(setting_of({{OptimizerInBackward, "true"}, {ActivationCheckpointing, "all"}}));
  few.push_back(setting_of({{ActivationCheckpointing, "all"}, {ActivationOffload, "true"}}));
  for (const char* checkpointing : {"none", "selective", "all"})
    for (const char* delay : {"true", "false"})
      few.push_back(setting_of({{OptimizerOffload, "cpu"},
                                {DelayedParameterUpdate, delay},
                                {ActivationCheckpointing, checkpointing}}));
  few.push_back(setting_of(
      {{OptimizerOffload, "cpu"}, {WeightStreaming, "true"}, {ActivationCheckpointing, "all"}}));
  few.push_back(leanest());
  return as_given(std::move(few));
}

std::vector<Setting> Techniques::on_disk(std::vector<Setting> settings, const std::string& folder) {
  std::erase_if(settings, [](const Setting& setting) { return !setting.is_on(OptimizerOffload); });
  for (Setting& setting : settings) setting[OptimizerOffload] = "disk:" + folder;
  return settings;
}

bool Techniques::is_free(const TechniqueTraits& traits) const {
  if (traits.may_try != nullptr && !traits.may_try(recipe_)) return false;
  if (traits.gains_on_gpus_only && !on_gpu_) return false;
  recipe::Recipe copy = recipe_;
  const recipe::Row option = traits.option(copy);
  return !recipe_.given(option.key) || (option.automatic != nullptr && *option.automatic);
}

std::vector<Setting> Techniques::as_given(std::vector<Setting> settings) const {
  std::vector<std::pair<Technique, std::string>> given;
  for (const TechniqueTraits& traits : recipe::techniques())
    if (!is_free(traits)) given.emplace_back(traits.technique, value_of(traits, recipe_));
  std::vector<Setting> different;
  for (Setting& setting : settings) {
    for (const auto& [technique, value] : given) setting[technique] = value;
    const bool is_new = std::ranges::find(different, setting) == different.end();
    if (is_new && recipe::can_be_combined(applied(recipe_, setting)))
      different.push_back(std::move(setting));
  }
  return different;
}

recipe::Recipe Techniques::applied(recipe::Recipe recipe, const Setting& setting) {
  for (const TechniqueTraits& traits : recipe::techniques())
    set_value(traits, recipe, setting[traits.technique]);
  recipe.train.accumulate_grad_batches.reset();  // the global batch stays
  return recipe;
}

std::string technique_options(const recipe::Recipe& from, const recipe::Recipe& to) {
  std::string text;
  for (const TechniqueTraits& traits : recipe::techniques()) {
    recipe::Recipe copy = from;
    const recipe::Row option = traits.option(copy);
    const std::string value = value_of(traits, to);
    const bool was_auto = option.automatic != nullptr && *option.automatic;
    if (was_auto || plain_text(option) != value)
      text += fmt::format("{}--{} {}", text.empty() ? "" : " ", option.key, value);
  }
  return text;
}

}  // namespace snug::plan
